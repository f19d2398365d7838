"""The page in a real browser: it draws at both sizes, and the console stays empty."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.explain.rankings import fused_and_reranked, hostile

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--hide-scrollbars",
    "--virtual-time-budget=2000",
]

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")

# Reports what a person would notice: sideways scrolling, what Tab reaches, whether Enter opens the details.
PROBE = """
<script>
window.addEventListener("load", function () {
  var every = document.querySelectorAll("svg a.hit");
  var lines = [].filter.call(every, function (line) { return line.getClientRects().length; });
  lines[0].focus();
  var lit = document.querySelectorAll(".on").length;
  location.hash = lines[0].getAttribute("href");
  setTimeout(function () {
    var open = document.querySelectorAll("details[open]").length;
    var wide = document.documentElement.scrollWidth > innerWidth;
    console.log("PROBE lines=" + lines.length + " lit=" + (lit > 1) + " open=" + open + " wide=" + wide);
  }, 100);
});
</script>
"""


def visit(page: Path, size: str, tmp_path: Path) -> tuple[bytes, list[str]]:
    shot = tmp_path / f"{size}.png"
    words = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / size}", f"--screenshot={shot}", f"--window-size={size}"]
    done = subprocess.run([*words, page.as_uri()], capture_output=True, text=True, timeout=90, check=False)
    return shot.read_bytes(), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("size", ["1280,800", "390,844"])
@pytest.mark.parametrize("make", [fused_and_reranked, hostile])
def test_page_in_chromium(size, make, tmp_path):
    """At 1280×800 and 390×844: no script error, no sideways scrolling, lines take focus and open."""
    page = tmp_path / "page.html"
    html = make().explain(query="what moved?").html()
    # The page's policy runs no script but its own: the probe needs it out of the way.
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    page.write_text(open_page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    shot, console = visit(page, size, tmp_path)
    assert len(console) == 1, console
    assert "PROBE lines=6 lit=true open=1 wide=false" in console[0]
    width, height = struct.unpack(">II", shot[16:24])
    assert f"{width},{height}" == size


def test_the_picture_fits_into_the_cell_of_a_notebook(tmp_path):
    """A narrow cell shows the whole picture, smaller; a wide one shows it at its own size."""
    page = tmp_path / "cell.html"
    picture = fused_and_reranked()._repr_html_()
    probe = (
        "<script>addEventListener('load', () => console.log('PROBE ' + [...document.querySelectorAll('svg')]"
        ".map((svg) => { const box = svg.getBoundingClientRect();"
        " return Math.round(box.width) + ' ' + (box.height / box.width).toFixed(2); }).join(', ')))</script>"
    )
    display_width = "".join(f"<div style='width: {width}px'>{picture}</div>" for width in (620, 1200))
    page.write_text(f"<!doctype html><body>{display_width}{probe}</body>", encoding="utf-8")
    _, [line] = visit(page, "1280,800", tmp_path)
    (narrow, shape), (wide, own_shape) = re.findall(r"(\d+) (\d\.\d+)", line.split("PROBE ")[1])
    assert (narrow, wide) == ("620", "1088")
    assert shape == own_shape
