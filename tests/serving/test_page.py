"""The front page in a real browser, on the running service: images in, words out, by mouse and by keyboard."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import serving_data
from heat_ood import HEAT
from serving_data import encoded, make_guard, served

pytestmark = pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--disable-dev-shm-usage"),
)
HOSTILE = ("<img src=x onerror=window.hacked=1>", "<script>window.hacked=2</script>", 'cat & "mouse" </dd>')
OFFERED = "<b onclick=window.hacked=3>.png"


class Page:
    """A browser with the page of one service open."""

    def __init__(self, binary: str, driver: str, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(20)

    def open(self, address: str, width: int = 1280, dark: bool = False) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [feature]})
        self.driver.get("about:blank")
        self.log(), self.requests()
        self.driver.get(address)
        self.until(lambda: "heat-ood 0" in self.text("version") or self.ask("document.querySelector('dialog[open]')"))

    def ask(self, expression: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {expression}", *arguments)

    def text(self, name: str) -> str:
        return str(self.ask(f"document.getElementById('{name}').innerText"))

    def until(self, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 30
        while not (found := holds()):
            assert time.monotonic() < deadline, f"it never came: {self.ask('document.body.innerText')}"
            time.sleep(0.05)
        return found

    def give(self, file: Path) -> None:
        """Choose a file, and wait for what is said of it."""
        self.ask("document.getElementById('verdict').replaceChildren()")
        self.ask("document.getElementById('wrong').hidden = true")
        self.driver.find_element(By.ID, "file").send_keys(str(file))
        self.answered()

    def answered(self) -> None:
        self.until(lambda: self.text("verdict") or self.text("wrong"))
        self.until(lambda: self.ask("document.getElementById('answer').getAttribute('aria-busy')") == "false")

    def log(self) -> list[str]:
        """What the console said, but for answers of the service that are no 200."""
        entries = self.driver.get_log("browser")
        return [one["message"] for one in entries if "the server responded with a status of" not in one["message"]]

    def requests(self) -> list[str]:
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def page(chromium: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    found = Page(*chromium, tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guard whose classes have names that no page should believe."""
    folder = tmp_path_factory.mktemp("page") / "guard"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving_data.Pictures, "classes", HOSTILE)
        make_guard(HEAT(residual=None), folder)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(5)
    (folder / "like.png").write_bytes(encoded(rng.integers(0, 256, (20, 16, 3), dtype=np.uint8)))
    (folder / "white.png").write_bytes(encoded(np.full((20, 16, 3), 255, dtype=np.uint8)))
    (folder / "broken.png").write_bytes((folder / "like.png").read_bytes()[:200])
    return folder


@pytest.fixture(scope="module")
def site(guard: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    offers = tmp_path_factory.mktemp("offers")
    (offers / OFFERED).write_bytes((pictures / "like.png").read_bytes())
    (offers / "white.png").write_bytes((pictures / "white.png").read_bytes())
    with served(guard, "--samples", str(offers)) as (address, _):
        yield address


def told(site: str, file: Path) -> dict[str, Any]:
    """What the service itself says of a file."""
    answer = httpx.post(f"{site}/v1/score", files={"image": (file.name, file.read_bytes())}).json()
    return answer["results"][0] if "results" in answer else answer


def test_an_upload_gives_the_verdict_of_the_service(page: Page, site: str, pictures: Path) -> None:
    expected = told(site, pictures / "like.png")
    page.open(site)
    page.give(pictures / "like.png")
    said = page.text("verdict")
    assert said.startswith("Like the training data")
    assert expected["class"]["name"] in said
    assert f"{expected['p_value']:.2g}" in said
    assert f"{100 * expected['p_value']:.2g} % of held-out images are at least as unusual" in said
    assert page.ask("document.getElementById('preview').naturalWidth") == 16
    assert page.ask("document.querySelectorAll('#histogram rect').length") > 5
    assert "this image" in page.text("histogram")
    lines = page.ask("[...document.querySelectorAll('#terms li')].map(li => li.innerText.split('\\n'))")
    assert [name for name, _ in lines] == [*(term["name"] for term in expected["terms"]), "score"]
    values = [float(value.replace("−", "-")) for _, value in lines]
    np.testing.assert_allclose(values, [*(term["value"] for term in expected["terms"]), expected["score"]], atol=0.006)
    page.until(lambda: "samples" in page.text("strip-words"))
    assert page.log() == []


def test_what_is_unlike_is_said_and_marked(page: Page, site: str, pictures: Path) -> None:
    expected = told(site, pictures / "white.png")
    assert expected["ood"]
    page.open(site)
    page.give(pictures / "white.png")
    assert page.text("verdict").startswith(f"Unlike the training data: p = {expected['p_value']:.2g}")
    assert "do not rely on that" in page.text("verdict")
    page.until(lambda: page.ask("document.querySelectorAll('#strip path.unlike').length"))
    assert page.ask("document.querySelector('#strip svg').getAttribute('aria-label')") == page.text("strip-words")


def test_a_broken_image_is_refused_in_words_and_the_next_one_judged(page: Page, site: str, pictures: Path) -> None:
    page.open(site)
    page.give(pictures / "broken.png")
    assert page.text("wrong") == told(site, pictures / "broken.png")["error"]
    assert page.text("verdict") == ""
    assert page.ask("document.getElementById('ranked').hidden && document.getElementById('composed').hidden")
    page.give(pictures / "like.png")
    assert page.text("verdict").startswith("Like")
    assert page.ask("document.getElementById('wrong').hidden")
    assert page.log() == []


def test_what_is_too_large_is_not_even_sent(page: Page, site: str, tmp_path: Path) -> None:
    page.open(site)
    limit = httpx.get(f"{site}/v1/info").json()["limits"]["body_bytes"]
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(limit + 1)
    page.requests()
    page.give(tmp_path / "large.png")
    assert re.fullmatch(r"large\.png has 16\.8 MB, and at most 16\.8 MB are taken\.", page.text("wrong"))
    assert not any(url.endswith("/v1/score") for url in page.requests())


def test_the_keyboard_alone_is_enough(page: Page, site: str) -> None:
    page.open(site)
    page.until(lambda: page.ask("document.querySelectorAll('#offers img').length") == 2)
    page.ask("document.activeElement.blur()")
    focus = page.driver.switch_to.active_element
    focus.send_keys(Keys.TAB)
    assert page.ask("document.activeElement.id") == "drop"
    assert page.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.ask("(window.opened = 0, document.getElementById('file').addEventListener('click', e => {"
             "e.preventDefault(); window.opened += 1; }))")  # fmt: skip
    for key in (Keys.ENTER, Keys.SPACE):
        page.driver.switch_to.active_element.send_keys(key)
    assert page.ask("window.opened") == 2

    for key, words in ((Keys.ENTER, "Like the training data"), (Keys.SPACE, "Unlike the training data")):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        assert page.ask("document.activeElement.matches('#offers button')")
        page.ask("document.getElementById('verdict').replaceChildren()")
        page.driver.switch_to.active_element.send_keys(key)
        page.answered()
        assert page.text("verdict").startswith(words)
    assert page.ask("document.getElementById('verdict').getAttribute('aria-live')") == "polite"
    assert page.log() == []


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_an_image_may_be_dropped_or_pasted(page: Page, site: str, way: str) -> None:
    page.open(site)
    page.driver.execute_async_script(
        """const [way, done] = arguments;
        fetch('samples/1').then(r => r.blob()).then(blob => {
          const data = new DataTransfer();
          data.items.add(new File([blob], 'white.png', {type: 'image/png'}));
          const event = way === 'drop' ? new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})
                                       : new ClipboardEvent('paste', {clipboardData: data, bubbles: true});
          document.getElementById('verdict').replaceChildren();
          document.body.dispatchEvent(event);
          done();
        });""",
        way,
    )
    page.answered()
    assert page.text("verdict").startswith("Unlike")


def test_names_are_text_and_nothing_else(page: Page, site: str, tmp_path: Path, pictures: Path) -> None:
    page.open(site)
    page.until(lambda: page.ask("document.querySelectorAll('#offers img').length") == 2)
    assert page.ask("[...document.querySelectorAll('#offers img')].map(i => i.alt)") == [OFFERED, "white.png"]
    file = tmp_path / "<img src=x onerror=window.hacked=4>.png"
    file.write_bytes((pictures / "white.png").read_bytes())
    page.give(file)
    assert any(name in page.text("verdict") for name in HOSTILE)
    assert page.ask("document.getElementById('preview').alt") == file.name
    file.write_bytes(b"no image")
    page.give(file)
    assert "<img src=x" in page.text("wrong")
    assert (
        page.ask("document.querySelectorAll('img[src=x], #verdict img, #wrong img, #offers b, dd script').length") == 0
    )
    assert page.ask("window.hacked") is None
    assert page.log() == []


def test_nothing_is_asked_of_another_host(page: Page, site: str, pictures: Path) -> None:
    page.open(site)
    page.give(pictures / "like.png")
    asked = page.requests()
    assert {f"{site}/", f"{site}/page/page.js", f"{site}/page/charts.js", f"{site}/v1/score"} <= set(asked)
    assert [url for url in asked if not url.startswith((f"{site}/", "blob:"))] == []
    policy = httpx.get(site).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not re.search(r"<script>|style=|onclick=|https?://", httpx.get(site).text)


def test_the_stream_is_followed_until_nobody_looks_or_answers(
    page: Page, guard: Path, pictures: Path, tmp_path: Path
) -> None:
    with served(guard, "--drift-state", str(tmp_path / "drift.json")) as (address, process):
        page.open(address)
        page.until(lambda: page.text("drift-words").startswith("1 after 0 samples (largest 1, alarm at 100)."))
        assert page.text("strip-words") == "Nothing has been judged yet."
        told(address, pictures / "like.png")
        page.until(lambda: "after 1 sample (" in page.text("drift-words"))
        page.until(lambda: page.text("strip-words") == "The last sample is like the training data.")
        for _ in range(12):
            told(address, pictures / "white.png")
        page.until(lambda: page.text("strip-words") == "Of the last 13 samples, 12 are unlike the training data.")
        page.until(lambda: page.text("drift-words").startswith("Alarm since"))
        assert "It probably began at sample 2." in page.text("drift-words")
        assert page.ask("document.querySelectorAll('#strip circle').length") == 1
        assert page.ask("document.querySelectorAll('#strip path').length") == 12
        assert page.log() == []

        looks = "performance.getEntriesByType('resource').filter(e => e.name.endsWith('/v1/recent')).length"
        first = page.ask(looks)
        page.until(lambda: page.ask(looks) > first)
        page.ask("Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true})")
        page.ask("window.away = true")
        time.sleep(1)
        seen = page.ask(looks)
        time.sleep(2.5)
        assert page.ask(looks) == seen
        page.ask("window.away = false")
        page.until(lambda: page.ask(looks) > seen)

        process.kill()
        process.wait()
        page.until(lambda: page.text("silent") == "The service does not answer. Is it running?")


@pytest.mark.parametrize("width", [320, 360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_can_be_read(page: Page, site: str, pictures: Path, width: int, dark: bool) -> None:
    page.open(site, width, dark)
    page.give(pictures / "white.png")
    page.until(lambda: page.ask("document.querySelectorAll('#drift svg').length"))
    assert page.ask("document.documentElement.scrollWidth") <= width
    outside = f"[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > {width} + 1)"
    assert page.ask(f"{outside}.map(e => e.outerHTML.slice(0, 80))") == []

    def light(colour: str) -> float:
        channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    back = light(page.ask("getComputedStyle(document.body).backgroundColor"))
    assert (back < 0.1) == dark
    for place in ("#served", ".said", ".why", "dt", "#drift-words", "#strip-words", "#terms .value", "footer a"):
        text = light(page.ask(f"getComputedStyle(document.querySelector('{place}')).color"))
        assert (max(text, back) + 0.05) / (min(text, back) + 0.05) > 4.5, place


def test_a_token_is_asked_for_and_kept_for_the_tab(page: Page, guard: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-of-many-letters")
    state = str(tmp_path / "drift.json")
    with served(guard, "--token-file", str(tmp_path / "token"), "--drift-state", state) as (address, _):
        page.open(address)
        field = page.driver.find_element(By.ID, "token")
        assert page.ask("document.activeElement.id") == "token"
        field.send_keys("another", Keys.ENTER)
        page.until(lambda: "refused" in page.text("gate-words"))
        field.send_keys("a-token-of-many-letters", Keys.ENTER)
        page.until(lambda: "held-out" in page.text("served"))
        page.give(pictures / "white.png")
        assert page.text("verdict").startswith("Unlike")
        page.driver.refresh()
        page.until(lambda: "held-out" in page.text("served"))
        assert not page.ask("document.querySelector('dialog').open")
        assert page.ask("localStorage.length + document.cookie.length") == 0
        assert page.log() == []


def test_a_detector_of_features_says_what_it_takes(page: Page, guard: Path, tmp_path: Path) -> None:
    with served(guard / "detector", "--no-drift") as (address, _):
        page.open(address)
        page.until(lambda: "judges features, not images" in page.text("wrong"))
        assert page.ask("document.getElementById('drop').disabled")
        page.until(lambda: page.text("drift-words") == "Drift is not watched.")
        assert page.log() == []
