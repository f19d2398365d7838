"""A real browser, driven by selenium; tests that need one are skipped where there is none."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--disable-dev-shm-usage",
)  # fmt: skip
WIDE, PHONE = (1280, 800), (390, 844)

needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no Chromium with its driver on this machine"
)


@contextmanager
def opened(folder: Path):
    """Yield a browser with a new profile; its console is at `get_log("browser")`."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={folder}", f"--window-size={WIDE[0]},{WIDE[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        emulate(driver, WIDE, dark=False)
        yield driver
    finally:
        driver.quit()


def new_tab(driver, url: str, *, size: tuple[int, int] = WIDE, dark: bool = False) -> None:
    """Continue in a new tab of the browser, without anything that pages of this address stored."""
    driver.switch_to.new_window("tab")
    new = driver.current_window_handle
    for other in driver.window_handles:
        if other != new:
            driver.switch_to.window(other)
            driver.close()
    driver.switch_to.window(new)
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": url, "storageTypes": "all"})
    driver.get_log("browser")
    emulate(driver, size, dark=dark)


def emulate(driver, size: tuple[int, int], *, dark: bool) -> None:
    """Give the page a size and a color scheme. The window has a frame; what counts is the page's own size."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
