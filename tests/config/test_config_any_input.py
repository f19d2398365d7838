"""Whatever stands in a file, the answer is settings or a list of mistakes, never a crash."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from resift.config import check_nodes
from resift.config.sections import PipelineFile
from resift.config.settings import Problems, Settings
from resift.config.yaml_nodes import from_plain, read_text
from resift.errors import ConfigError
from resift.plugins import load_plugin
from resift.validation import declared_options, options_class


def _names(declared):
    for option in declared_options(declared):
        yield option.name
        if option.nested is not None:
            yield from _names(option.nested)
        for name in option.allowed() if option.plugins else ():
            own = options_class(load_plugin(option.plugins, name))
            yield from () if own is None else _names(own)


KEYS = sorted(set(_names(PipelineFile)))
WORDS = ["docs", "sqlite", "ladybug", "qdrant", "rrf", "cross-encoder", "voyage", "${X}", "$query", "", "\0", "é"]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(), st.sampled_from(WORDS), st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
FILES = st.dictionaries(st.sampled_from([option.name for option in declared_options(PipelineFile)]), VALUES, max_size=6)


@given(config=FILES)
def test_any_structure_gives_settings_or_mistakes(tmp_path_factory, config):
    """Every structure is checked to its end; without mistakes there are stores to ask."""
    folder = tmp_path_factory.getbasetemp()
    found, problems = check_nodes(from_plain(config), Problems("f.yaml"), folder, expand=True)
    assert isinstance(found, Settings)
    assert problems.found or found["stores"]
    assert all(line.startswith("f.yaml") and "\n" not in line.strip() for line in problems.lines())


@given(config=FILES)
def test_lines_of_mistakes_are_lines_of_the_file(tmp_path_factory, config):
    """A mistake in YAML text always has a line that exists."""
    text = yaml.safe_dump(config, allow_unicode=True)
    _, problems = check_nodes(read_text(text), Problems("f.yaml"), tmp_path_factory.getbasetemp(), expand=True)
    assert all(1 <= line <= len(text.splitlines()) for line, _ in problems.found)


@given(text=st.text(alphabet="ab:-[]{}&*!|>\n\t '\"%@#1?,", max_size=60))
def test_any_text_gives_nodes_or_a_config_error(text):
    """No text crashes the reader."""
    message = "f.yaml"
    try:
        read_text(text, file="f.yaml")
    except ConfigError as error:
        message = str(error)
    assert message.startswith("f.yaml")
