"""The report in a real browser: it renders, sorts, switches, fits a phone, and is dark where that is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from heat_ood.report import write_report
from results_data import gallery, lines, rich, without

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--disable-dev-shm-usage"),
)


class Browser:
    """A browser with one report open; its size, colours and script can be set."""

    def __init__(self, binary: str, driver: str, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))

    def open(self, page: Path, width: int = 1280, dark: bool = False, script: bool = True, media: str = "") -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
        self.driver.get(page.as_uri())

    def ask(self, expression: str) -> Any:
        return self.driver.execute_script(f"return {expression}")

    def names(self) -> list[str]:
        """The rows of the table that is shown, from top to bottom."""
        return self.ask(
            "[...document.querySelectorAll('.pane:not([hidden]) table.sortable')][0].querySelectorAll('tbody th')"
            ".values().map(th => th.textContent).toArray()"
        )

    def log(self) -> list[Any]:
        return self.driver.get_log("browser")


@pytest.fixture(scope="module")
def browser(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(*chromium, tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    several = [rich(), without(), lines("lambda"), lines("beta"), lines("low-data"), gallery()]
    return {
        "one": write_report(rich(), folder / "one.html"),
        "several": write_report(several, folder / "several.html"),
    }


@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_and_nothing_is_logged(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name], width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("document.querySelector('.chart').getBoundingClientRect().height") > 50
    outside = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.box, .chart') && "
        f"e.getBoundingClientRect().right > {width} + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert browser.ask(outside) == []
    assert browser.log() == []


def test_a_wide_table_scrolls_in_its_own_box(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 390)
    box = "document.querySelector('.pane:not([hidden]) .box')"
    assert browser.ask(f"{box}.scrollWidth > {box}.clientWidth")
    browser.ask(f"{box}.scrollTo(200, 0)")
    assert browser.ask(f"{box}.scrollLeft") > 0
    assert browser.ask(f"{box}.querySelector('tbody th').getBoundingClientRect().left") >= 0, "the names stay in sight"


def test_a_table_says_that_it_scrolls_where_it_does(browser: Browser, pages: dict[str, Path]) -> None:
    box = "document.querySelector('.pane:not([hidden]) .box')"
    hint = f"getComputedStyle({box}, '::before').content"
    shadow = f"getComputedStyle({box}).boxShadow"
    browser.open(pages["one"], 390)
    assert "scrolls" in browser.ask(hint)
    left = browser.ask(shadow)
    assert left != "none"
    browser.driver.execute_async_script(f"{box}.scrollTo(9999, 0); setTimeout(arguments[0], 100)")
    assert browser.ask(shadow) not in ("none", left), "at the end it lies on the other side"
    browser.open(pages["one"], 1280)
    assert browser.ask(f"{box}.scrollWidth <= {box}.clientWidth")
    assert browser.ask(hint) == "none"
    assert browser.ask(shadow) == "none"


def test_a_click_sorts_and_another_turns_it_round(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    start = browser.names()
    assert start == ["HEAT", "plain composition", "knn", "gmm", "msp", "HEAT (paper)"]
    heads = browser.driver.find_elements(By.CSS_SELECTOR, ".pane:not([hidden]) th")
    by_name, _, by_average, *_ = heads
    assert by_average.get_attribute("aria-sort") == "ascending"

    by_average.find_element(By.TAG_NAME, "button").click()
    assert by_average.get_attribute("aria-sort") == "descending"
    assert browser.names() == [*start[:5][::-1], start[5]], "the paper's rows stay apart"

    by_name.find_element(By.TAG_NAME, "button").click()
    assert browser.names()[:5] == sorted(start[:5], key=str.lower)
    assert by_average.get_attribute("aria-sort") == "none"
    assert browser.log() == []


def test_the_keyboard_sorts_too(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    button = browser.driver.find_element(By.CSS_SELECTOR, ".pane:not([hidden]) th:nth-child(3) button")
    before = browser.names()
    button.send_keys(Keys.ENTER)
    assert browser.names() != before
    button.send_keys(Keys.SPACE)
    assert browser.names() == before


def test_tabs_show_one_pane_by_click_and_by_arrow(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    shown = (
        "[...document.querySelectorAll('.switch')].map(s => s.querySelectorAll(':scope > .pane:not([hidden])').length)"
    )
    assert browser.ask(shown) == [1, 1]
    tabs = browser.driver.find_elements(By.CSS_SELECTOR, ".tabs:first-child button")[:5]
    tabs[1].click()
    chosen = "document.querySelector('.switch > .pane:not([hidden])').dataset.title"
    assert browser.ask(chosen) == "AUROC ↑"
    tabs[1].send_keys(Keys.ARROW_RIGHT)
    assert browser.ask(chosen) == "fpr_at_95_ood ↓"
    assert browser.ask("document.activeElement.getAttribute('aria-selected')") == "true"
    assert browser.ask(shown) == [1, 1]


def test_without_its_script_everything_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], script=False)
    try:

        def found(selector: str) -> list[int]:
            tree = browser.driver.execute_cdp_cmd("DOM.getDocument", {})["root"]["nodeId"]
            query = {"nodeId": tree, "selector": selector}
            return browser.driver.execute_cdp_cmd("DOM.querySelectorAll", query)["nodeIds"]

        deadline = time.monotonic() + 30  # a busy machine loads the page late, and no script can say when
        while len(panes := found(".pane")) < 11 and time.monotonic() < deadline:
            time.sleep(0.1)
        heights = [browser.driver.execute_cdp_cmd("DOM.getBoxModel", {"nodeId": n})["model"]["height"] for n in panes]
        assert len(panes) == 11
        assert min(heights) > 50
        assert found("th button") == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_dark_where_the_reader_wants_it(browser: Browser, pages: dict[str, Path]) -> None:
    def brightness() -> float:
        colour = browser.ask("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(",")) / 3

    browser.open(pages["one"], dark=True)
    assert brightness() < 60
    browser.open(pages["one"], dark=False)
    assert brightness() > 240
    browser.open(pages["one"], dark=True, media="print")
    assert brightness() > 240, "paper is white"
    assert browser.ask("getComputedStyle(document.querySelector('.pane[hidden]')).display") == "block"


def test_no_text_of_a_chart_is_cut_or_overlaps_another(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["several"])
    script = """(() => {
      const bad = [];
      for (const svg of document.querySelectorAll('svg.chart')) {
        const frame = svg.getBoundingClientRect();
        if (!frame.width) continue;
        const said = [...svg.querySelectorAll('text')].filter(t => t.textContent);
        const boxes = said.map(t => [t.textContent, t.getBoundingClientRect()]);
        boxes.forEach(([text, a], i) => {
          if (a.left < frame.left - 8 || a.right > frame.right + 8) bad.push(['cut', text]);
          if (a.bottom > frame.bottom + 4) bad.push(['cut below', text]);
          for (const [other, b] of boxes.slice(i + 1)) {
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (wide > 1 && high > 4) bad.push([text, other]);
          }
        });
      }
      return bad;
    })()"""
    assert browser.ask(script) == []
