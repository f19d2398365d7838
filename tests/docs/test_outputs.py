"""The tool that runs pages and writes their outputs."""

from __future__ import annotations

import pytest

from tools import build_outputs
from tools.console_blocks import check_extras

PAGE = """# Page

```python
print("score", 0.25)
```
```text
score 0.5
```

Words between: the next text is no output.

```python
print("unseen")
```

So is this one not.

```text
anything
```
"""


def test_outputs_are_those_of_the_block_before(tmp_path):
    """Only a text block that directly follows code is taken for its output."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    printed = build_outputs.printed(build_outputs.run(page, tmp_path).stdout)
    assert printed == ["score 0.25", "unseen"]
    assert list(build_outputs.promised(PAGE)) == [0]
    assert build_outputs.refilled(PAGE, printed) == PAGE.replace("0.5", "0.25")


def test_numbers_may_differ_and_words_may_not():
    """Scores move in the last digits between processors; an order or a sentence does not."""
    assert build_outputs.alike("score 0.25 of 3", "score 0.2501 of 3\n")
    assert not build_outputs.alike("['a', 'b']", "['b', 'a']")


def test_errors_name_the_line_of_the_page(tmp_path):
    """Blocks stand at the lines that they have on the page."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\n```python\n\nraise KeyError(x)\n```\n", encoding="utf-8")
    assert "line 9, in <module>" in build_outputs.run(page, tmp_path).stderr


def test_what_a_pages_processes_import_is_no_output_of_the_page(tmp_path):
    """New processes import the page again; its output is what the first one printed."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport multiprocessing\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(abs, [-2]))\n```\n",
        encoding="utf-8",
    )
    assert build_outputs.printed(build_outputs.run(page, tmp_path).stdout) == ["[2]"]


CONSOLE = """```console
$ resift models --help > help.txt
$ cat nothing.txt  # exit code 1
old
$ echo one \\
  two
three
$ docker run resift
not run
```
"""


def test_console_blocks_run_and_show_what_is_printed(tmp_path):
    """Commands share a folder; a program that is not run keeps its output."""
    page = tmp_path / "page.md"
    page.write_text(CONSOLE, encoding="utf-8")
    answer = build_outputs.run(page, tmp_path)
    assert (tmp_path / "help.txt").read_text(encoding="utf-8").startswith("usage: resift models")
    outputs = build_outputs.printed(answer.stdout)
    filled = build_outputs.refilled(CONSOLE, outputs)
    assert "No such file" in filled
    assert "one two\n" in filled
    assert filled.endswith("$ docker run resift\nnot run\n```\n")
    assert build_outputs.differences(filled, outputs) == []
    assert len(build_outputs.differences(CONSOLE, outputs)) == 2


def test_a_failing_command_fails_the_page(tmp_path):
    """The exit code must be the one on the page."""
    page = tmp_path / "page.md"
    page.write_text("```console\n$ cat nothing.txt\n```\n", encoding="utf-8")
    assert "exit code 1" in build_outputs.run(page, tmp_path).stderr


def test_three_dots_stand_for_any_lines():
    assert build_outputs.alike("a 1\nb\nc\nd", "a 2\n…\nd")
    assert not build_outputs.alike("a\nb", "a\n…\nd")


def test_extras_must_exist():
    """`pip install` is not run, but a mistake in an extra is found."""
    check_extras("pip install 'resift[local,server]'")
    with pytest.raises(ValueError, match="localx"):
        check_extras("pip install 'resift[localx]'")
