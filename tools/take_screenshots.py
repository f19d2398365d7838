"""`python -m tools.take_screenshots [NAME …]`: takes the screenshots in docs/pictures, so they stay true.

Needs Chromium with its driver and selenium. The pages come from a real server, a real index of the shipped
sample and the real models. Terminal pictures are what the commands print, as SVG.
"""

# ruff: noqa: S603, S310 - runs Resift and opens its pages on this machine

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from resift.demo import passages

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
QUERY = "how much notice must I give after two years here?"
WIDE, PHONE = (1280, 800), (390, 844)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
         "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage")  # fmt: skip
TERMINALS = {
    "terminal-demo": "resift demo",
    "terminal-index": "resift index island --store island.db",
    "terminal-search": f'resift search "{QUERY}" --store island.db -k 3',
    "terminal-explain": f'resift search "{QUERY}" --store island.db -k 3 --explain',
    "terminal-ask": 'resift ask "do I pay for my bike on the ferry in August?" --store island.db',
    "terminal-doctor": "resift doctor",
}


def write_island(folder: Path) -> None:
    """Write the sample as Markdown files with headings, as people keep them."""
    files: dict[str, list[str]] = {}
    for row in passages():
        name, _, heading = row["id"].partition("/")
        title = heading.replace("-", " ").capitalize()
        files.setdefault(name, [f"# {name.capitalize()}"]).append(f"## {title}\n\n{row['text']}")
    folder.mkdir()
    for name, sections in files.items():
        (folder / f"{name}.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def run(words: list[str], folder: Path, output: str = "") -> None:
    """Run a command of Resift; `output` is the file for what it prints."""
    command = [sys.executable, "-m", "resift.cli.main", *words]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True)
    if output:
        (folder / output).write_bytes(done.stdout)


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Yield the address of `resift serve` on the index."""
    port = "18787"
    words = [sys.executable, "-m", "resift.cli.main", "serve", "--store", "island.db", "--port", port]
    words += ["--judgments", "ratings"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/readyz").close()
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def browser(profile: Path, size: tuple[int, int], *, dark: bool) -> Iterator[Any]:
    """Yield a browser whose page has this size."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield driver
    finally:
        driver.quit()


def save_png(driver: Any, name: str) -> None:
    """Save the visible page with a palette of 256 colors, which is a third of the size."""
    from PIL import Image

    image = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(PICTURES / f"{name}.png", optimize=True)
    sys.stderr.write(f"wrote {name}.png, {(PICTURES / f'{name}.png').stat().st_size // 1024} KB\n")


def open_playground(driver: Any, url: str, address: str = "") -> None:
    """Open the playground, with a search if the address has one, and wait until it is done."""
    driver.get(f"{url}/{address}")
    script = (
        "return document.body.dataset.ready === 'yes' && (!arguments[0] || document.querySelector('.result')"
        " && !document.querySelector('.answer.dim'))"
    )
    for _ in range(300):
        if driver.execute_script(script, address):
            break
        time.sleep(0.1)
    time.sleep(0.3)


def take_pages(names: set[str], folder: Path) -> None:
    """Take the screenshots of playground, explanation and evaluation report."""
    search = "#q=" + urllib.request.quote(QUERY)
    click: Callable[[Any, str], None] = lambda driver, css: driver.find_element("css selector", css).click()  # noqa: E731
    shots: list[tuple[str, tuple[int, int], bool, str, str]] = [
        ("playground-start", WIDE, False, "", ""),
        ("playground", WIDE, False, search, ""),
        ("playground-dark", WIDE, True, search, ""),
        ("playground-phone", PHONE, False, search, ""),
        ("playground-phone-dark", PHONE, True, search, ""),
        ("playground-why", WIDE, False, search, ".result summary"),
        ("playground-settings", WIDE, False, search, "#drawer-button"),
        ("playground-rate", WIDE, False, search, "#judge"),
    ]
    wanted = [shot for shot in shots if shot[0] in names]
    if wanted:
        with server(folder) as url:
            for name, size, dark, address, css in wanted:
                with browser(folder / f"profile-{name}", size, dark=dark) as driver:
                    open_playground(driver, url, address)
                    if name == "playground-rate":
                        click(driver, "#drawer-button")
                    if css:
                        click(driver, css)
                        time.sleep(2 if name == "playground-rate" else 0.3)
                    save_png(driver, name)
    pages = {
        "explanation": (WIDE, False, "page.html"),
        "explanation-dark": (WIDE, True, "page.html"),
        "explanation-phone": (PHONE, False, "page.html"),
        "explanation-open": (WIDE, False, "page.html#hit-1"),
        "report": (WIDE, False, "report.html"),
        "report-phone": (PHONE, False, "report.html"),
    }
    if names & set(pages):
        run(["search", QUERY, "--store", "island.db", "--explain", "--json"], folder, "ranking.json")
        run(["explain", "ranking.json", "-o", "page.html"], folder)
        if names & {"report", "report-phone"}:
            make_report(folder)
    for name in sorted(names & set(pages)):
        size, dark, file = pages[name]
        with browser(folder / f"profile-{name}", size, dark=dark) as driver:
            driver.get(f"file://{folder}/{file}")
            time.sleep(0.5)
            save_png(driver, name)


def make_report(folder: Path) -> None:
    """Evaluate two pipelines on the judged queries of the sample and write the report."""
    import json

    from resift.demo import questions

    data = folder / "sample"
    (data / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": row["id"], "text": row["text"]}) for row in passages()]
    (data / "corpus.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    rows = [json.dumps({"_id": question.id, "text": question.text}) for question in questions()]
    (data / "queries.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    rows = [f"{each.id}\t{id}\t{grade}" for each in questions() for id, grade in each.grades.items()]
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    run(["compare", "sample", "bm25", "default", "--report", "report.html"], folder)


def take_terminal(name: str, command: str, folder: Path, columns: int = 100) -> None:
    """Run a command on a terminal and save what it prints as SVG, without fonts from elsewhere."""
    import fcntl
    import shlex
    import termios

    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    words = [sys.executable, "-m", "resift.cli.main", *shlex.split(command)[1:]]
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(words, cwd=folder, stdout=other, stderr=subprocess.DEVNULL, env=env)
    os.close(other)
    printed = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # the program has ended
            break
        if not chunk:
            break
        printed += chunk
    process.wait()
    os.close(main)
    text = printed.decode().replace("\r\n", "\n").replace(str(ROOT), "resift")
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{text.rstrip()}"))
    start, end = CONSOLE_SVG_FORMAT.index("@font-face"), CONSOLE_SVG_FORMAT.index(".{unique_id}-matrix")
    template = CONSOLE_SVG_FORMAT[:start] + CONSOLE_SVG_FORMAT[end:]
    template = template.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono")
    picture = console.export_svg(title=command, theme=MONOKAI, code_format=template, unique_id=name)
    label = f"<title>{escape(command)}</title><desc>Output of {escape(command)} in a terminal.</desc>"
    picture = re.sub(r"(<svg[^>]*>)", rf"\1{label}", picture, count=1)
    (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")
    sys.stderr.write(f"wrote {name}.svg, {len(picture) // 1024} KB\n")


def main() -> int:
    """Take the named pictures, or all."""
    every = {"playground-start", "playground", "playground-dark", "playground-phone", "playground-phone-dark",
             "playground-why", "playground-settings", "playground-rate", "explanation", "explanation-dark",
             "explanation-phone", "explanation-open", "report", "report-phone", *TERMINALS}  # fmt: skip
    names = set(sys.argv[1:]) or every
    if names - every:
        sys.stderr.write(f"unknown: {', '.join(sorted(names - every))}; known: {', '.join(sorted(every))}\n")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_island(folder / "island")
        run(["index", "island", "--store", "island.db"], folder)
        take_pages(names, folder)
        for picture in sorted(names & set(TERMINALS)):
            take_terminal(picture, TERMINALS[picture], folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
