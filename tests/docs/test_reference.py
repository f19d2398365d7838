"""The reference pages say what the code says."""

from __future__ import annotations

import inspect
import sys

import pytest

from tools import build_http
from tools import build_reference as build


@pytest.mark.parametrize("page", ["api_page", "cli_page", "events_page", "errors_page"])
def test_pages_do_not_drift(page):
    """Who changes a signature, option, event or error also runs tools/build_reference.py."""
    if page == "cli_page" and sys.version_info >= (3, 13):
        pytest.skip("argparse writes help differently since Python 3.13")
    if page == "api_page" and sys.version_info >= (3, 14):
        pytest.skip("typing writes unions differently since Python 3.14")
    name = page.removesuffix("_page") + ".md"
    assert getattr(build, page)() == (build.PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["http_page", "environment_page"])
def test_pages_of_the_server_and_environment_do_not_drift(page):
    """New routes, fields and variables reach the pages."""
    name = page.removesuffix("_page") + ".md"
    assert getattr(build, page)(build.MADE) == (build.PAGES / name).read_text(encoding="utf-8")


def test_every_variable_of_the_code_is_described():
    """A new `RESIFT_…` variable gets a row in tools/build_http.py."""
    page = (build.PAGES / "environment.md").read_text(encoding="utf-8")
    assert sorted(name for name in build_http.variables_in_source() if f"`{name}`" not in page) == []


def test_the_reference_has_every_name_of_the_front_door():
    """What `import resift` offers is on the page, with a sentence."""
    import resift

    text = build.api_page().replace("**`await ", "**`")
    assert [name for name in resift.__all__ if f"**`{name}" not in text and name != "ResiftError"] == []


def test_defaults_are_written_without_addresses():
    """A page that holds a memory address would drift with every run."""
    text = build.api_page()
    assert " at 0x" not in text
    assert inspect.signature(build.pages).parameters == {}


def test_a_changed_signature_is_seen():
    """The drift check fails when a function gains an argument."""

    def before(query, *, k=10): ...

    def after(query, *, k=10, deep=False): ...

    assert build._called("f", before) == "f(query, *, k=10)"
    assert build._called("f", after) == "f(query, *, k=10, deep=False)"
