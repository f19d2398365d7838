"""The reference page and the table cannot drift apart."""

from __future__ import annotations

from pathlib import Path

from resift.config import inspect_yaml
from resift.config.sections import PipelineFile, reference_page
from resift.plugins import load_plugin
from resift.validation import declared_options, options_class

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def _names(declared):
    for option in declared_options(declared):
        yield option.name
        assert option.help.endswith((".", "PATH")), option.name
        if option.nested is not None:
            yield from _names(option.nested)
        for name in option.allowed() if option.plugins else ():
            own = options_class(load_plugin(option.plugins, name))
            yield from () if own is None else _names(own)


def test_the_page_is_up_to_date():
    """Regenerate with `resift config reference > docs/reference/configuration.md`."""
    assert PAGE.read_text(encoding="utf-8") == reference_page()


def test_every_key_is_on_the_page():
    """No key without a line that says what it does."""
    text = reference_page()
    assert all(f"| `{name}` |" in text for name in _names(PipelineFile))


def test_the_example_of_the_guide_has_no_mistake(tmp_path):
    """The whole example of docs/guides/run/pipeline-files.md passes the check."""
    guide = (PAGE.parents[1] / "guides" / "run" / "pipeline-files.md").read_text(encoding="utf-8")
    (tmp_path / "docs.db").touch()
    (tmp_path / "graph.lbug").touch()
    file = tmp_path / "pipeline.yaml"
    file.write_text(guide.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    assert inspect_yaml(file)[1].lines() == []
