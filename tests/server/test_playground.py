"""The page in a real browser: question to cards to why, rating by key, hostile documents, a key, a phone."""

from __future__ import annotations

import json

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from resift.cli.main import main
from resift.evaluation.readers import read_collection
from tests.server.browser import PHONE, WIDE, needs_browser, new_tab, opened
from tests.server.process import start

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=\"document.title='broken'\"> fox <script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def server(tmp_path_factory, judged):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("sesame\n", encoding="utf-8")
    server = start("--api-key-file", str(keys), "--judgements", str(judged))
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """One browser for all tests; each continues in a new tab without stored data."""
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def visit(driver, server, *, size=WIDE, dark=False):
    """Open the page in a new tab and give it the key that it asks for."""
    new_tab(driver, server.url, size=size, dark=dark)
    driver.get(f"{server.url}/")
    wait = WebDriverWait(driver, 30, ignored_exceptions=[StaleElementReferenceException])
    wait.until(lambda one: one.find_element(By.ID, "key").is_displayed())
    driver.find_element(By.ID, "key").send_keys("sesame\n")
    wait.until(lambda one: one.find_element(By.TAG_NAME, "body").get_attribute("data-ready") == "yes")
    return wait


def fill(driver, query, documents):
    driver.find_element(By.ID, "query").send_keys(query)
    driver.execute_script(
        "const box = document.getElementById('documents'); box.value = arguments[0];"
        "box.dispatchEvent(new Event('input'));",
        "\n".join(documents),
    )


def cards(driver):
    return driver.find_elements(By.CSS_SELECTOR, ".result")


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (PHONE, True)])
def test_question_to_cards_to_why(driver, server, size, dark):
    """A key, a question, ranked cards, a flow, why on opening; hostile documents are only text."""
    wait = visit(driver, server, size=size, dark=dark)
    fill(driver, "red fox", ["a blue whale", "the red fox", HOSTILE])
    driver.find_element(By.ID, "query").send_keys("\n")
    wait.until(lambda one: len(cards(one)) == 3)
    first = cards(driver)[0]
    assert "the red fox" in first.text
    first.find_element(By.TAG_NAME, "summary").click()
    assert "1st of 3" in first.find_element(By.CSS_SELECTOR, ".why").text
    # The first hit is visible at once, with its matching words marked.
    assert first.location["y"] + 60 < size[1]
    assert [mark.get_property("textContent") for mark in first.find_elements(By.TAG_NAME, "mark")] == ["red", "fox"]
    assert driver.find_element(By.CSS_SELECTOR, ".timing summary").text.endswith("MiniLM-L-12-v2")
    flow = driver.find_element(By.CSS_SELECTOR, ".picture")
    # On a phone the picture is below the hits and closed.
    assert (flow.get_attribute("open") is not None) == (size == WIDE)
    if size != WIDE:
        driver.execute_script("arguments[0].open = true", flow)
    drawn = flow.find_element(By.CSS_SELECTOR, "svg.flow.narrow")
    assert driver.execute_script("return arguments[0] instanceof SVGSVGElement", drawn)
    assert drawn.size["height"] > 100
    # Its middle may be between two strokes of the curve; the last rank on it is always under the pointer.
    drawn.find_elements(By.CSS_SELECTOR, "a text.rank")[-1].click()
    assert HOSTILE in driver.find_element(By.ID, "results").text
    assert driver.title == "Resift playground"
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    background = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(251, 250, 248)")
    refused = [line for line in driver.get_log("browser") if "401" not in line["message"]]
    assert refused == []


def test_the_focus_ring_of_an_open_hit_covers_no_text(driver, server):
    """The reason begins below the ring around the line that opened it."""
    wait = visit(driver, server)
    fill(driver, "red fox", ["a blue whale", "the red fox"])
    driver.find_element(By.ID, "query").send_keys("\n")
    wait.until(lambda one: len(cards(one)) == 2)
    summary = cards(driver)[0].find_element(By.TAG_NAME, "summary")
    driver.execute_script("arguments[0].focus()", summary)
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    wait.until(lambda one: one.find_element(By.CSS_SELECTOR, ".why").is_displayed())
    ring, text = driver.execute_script(
        "const look = getComputedStyle(arguments[0]), range = document.createRange();"
        "range.selectNodeContents(arguments[0].parentElement.querySelector('.why'));"
        "const ring = parseFloat(look.outlineWidth) + parseFloat(look.outlineOffset);"
        "return [arguments[0].getBoundingClientRect().bottom + ring, range.getClientRects()[0].top]",
        summary,
    )
    assert driver.execute_script("return arguments[0].matches(':focus-visible')", summary)
    assert ring <= text


def test_two_settings_side_by_side_and_a_request_to_copy(driver, server):
    """The second setting gets its own column; the copied request is the one of the page."""
    wait = visit(driver, server)
    driver.find_element(By.ID, "sample").click()
    driver.find_element(By.ID, "drawer-button").click()
    driver.find_element(By.ID, "compare").click()
    assert driver.find_element(By.ID, "setting-b").is_displayed()
    driver.find_element(By.ID, "drawer-close").click()
    driver.find_element(By.ID, "search").click()
    wait.until(lambda one: len(one.find_elements(By.CSS_SELECTOR, ".ranking")) == 2)
    left, right = (box.location["x"] for box in driver.find_elements(By.CSS_SELECTOR, ".ranking"))
    assert left < right
    text = driver.execute_async_script(
        "const done = arguments[0]; import('/playground/copying.js').then((module) =>"
        " done(module.asText('curl', {query: \"it's\", k: 3}, true)));"
    )
    assert text.startswith(f"curl {server.url}/v1/search")
    program = driver.execute_async_script(
        "const done = arguments[0]; import('/playground/copying.js').then((module) =>"
        " done(module.asText('python', {query: 'true, false and null', k: 3}, false)));"
    )
    line = next(line for line in program.splitlines() if line.startswith("body = "))
    scope = {"json": json}
    exec(line, scope)
    assert scope["body"] == {"query": "true, false and null", "k": 3}
    assert "it'\\''s" in text
    assert "sesame" not in text


def test_rating_by_key_fills_a_beir_folder(driver, server, judged):
    """Two settings interleaved blind, rated by key press: what eval reads is there, and the score shows."""
    wait = visit(driver, server)
    fill(driver, "red fox", ["a blue whale", "the red fox", "a red apple"])
    driver.find_element(By.ID, "drawer-button").click()
    driver.find_element(By.ID, "compare").click()
    driver.find_element(By.ID, "blind").click()
    driver.find_element(By.ID, "judge").click()
    wait.until(lambda one: len(one.find_elements(By.CSS_SELECTOR, ".rate")) == 3)
    shown = [card.find_element(By.TAG_NAME, "bdi").text for card in cards(driver)]
    grades = {"the red fox": "3", "a red apple": "1", "a blue whale": "0"}
    for at, text in enumerate(shown):
        ActionChains(driver).send_keys(grades[text]).perform()
        pressed = "button[aria-pressed=true]"
        wait.until(lambda one: len(one.find_elements(By.CSS_SELECTOR, pressed)) > at)  # noqa: B023
    wait.until(lambda one: "1 query, 3 ratings" in one.find_element(By.ID, "score").text)
    assert "blind:" in driver.find_element(By.ID, "score").text
    collection = read_collection(judged)
    assert list(collection.queries.values()) == ["red fox"]
    texts = {row["id"]: row["text"] for row in collection.documents()}
    [rated] = collection.qrels.values()
    assert {texts[id]: str(grade) for id, grade in rated.items()} == grades


def test_an_index_is_described_searched_by_address_filtered_and_saved(driver, tmp_path):
    """What the index holds, a query to try, an answer, the query in the address, a filter and a report."""
    notes = tmp_path / "notes.md"
    notes.write_text(
        f"# Zoo\n\n## Red foxes\n\nThe red fox sleeps at noon. {HOSTILE}\n\n## Whales\n\nA whale sings.\n",
        encoding="utf-8",
    )
    store = tmp_path / "zoo.db"
    assert main(["index", str(notes), "--store", str(store), "--text-only"]) == 0
    server = start("--store", str(store))
    try:
        wait = WebDriverWait(driver, 30, ignored_exceptions=[StaleElementReferenceException])
        new_tab(driver, server.url)
        driver.get(f"{server.url}/")
        wait.until(lambda one: "2 passages" in one.find_element(By.ID, "index").text)
        samples = driver.find_elements(By.CSS_SELECTOR, ".samples button")
        next(button for button in samples if button.text == "Red foxes").click()
        wait.until(cards)
        title = (By.CSS_SELECTOR, ".title")
        wait.until(lambda one: cards(one)[0].find_element(*title).text == "Zoo › Red foxes")
        assert "#q=Red+foxes" in driver.current_url
        driver.get("about:blank")
        driver.get(f"{server.url}/#q=when+does+the+fox+sleep%3F&k=1")
        wait.until(lambda one: "noon" in one.find_element(By.CSS_SELECTOR, ".answer").text)
        assert len(cards(driver)) == 1
        report = driver.execute_async_script(
            "const done = arguments[0]; fetch('/v1/search', {method: 'POST', body: JSON.stringify("
            "{query: 'fox', report: true})}).then((a) => a.json()).then((data) => done(data.report));"
        )
        assert "<h1><bdi>fox</bdi></h1>" in report
        assert HOSTILE not in report
        driver.find_element(By.ID, "filter").send_keys("heading=nowhere")
        driver.find_element(By.ID, "search").click()
        wait.until(lambda one: not cards(one))
        assert "heading" in driver.find_element(By.ID, "status").text
        driver.find_element(By.ID, "filter").send_keys(" price>")
        driver.find_element(By.ID, "search").click()
        wait.until(lambda one: "incomplete" in one.find_element(By.ID, "status").text)
        assert [line for line in driver.get_log("browser") if line["level"] == "SEVERE"] == []
    finally:
        assert server.stop() == 0
