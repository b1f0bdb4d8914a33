"""What all tests share: data and a browser, or a word on what they skip without; a torchvision that imports."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch


def repair_torchvision() -> torch.library.Library | None:
    """Declare the operators that torchvision registers fake kernels for, if its own library could not be loaded."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None


_torchvision = repair_torchvision()
torch.set_num_threads(1)  # two workers share two cores


# What a machine may lack: the tests that need it say so and skip, and the run says at its end what to do

NO_BROWSER, NO_DATA = "no Chromium", "no networks and images"
REMEDIES = {
    NO_BROWSER: ("browser test", "browser tests", "Install it with: apt-get install chromium chromium-driver"),
    NO_DATA: ("test on real data", "tests on real data", "Set HEAT_OOD_DATA to the folder that holds nets.py"),
}


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the CIFAR networks and images: HEAT_OOD_DATA, or ../shared/data beside the repository."""
    folder = Path(os.environ.get("HEAT_OOD_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "nets.py").is_file():
        pytest.skip(f"{NO_DATA} in {folder}")
    return folder


@pytest.fixture(scope="session")
def chromium() -> tuple[str, str]:
    """The browser and its driver."""
    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(NO_BROWSER)
    return browser, driver


def closing_lines(reasons: Iterable[str]) -> list[str]:
    """What to say about the tests that were skipped for these reasons.

    >>> closing_lines(["Skipped: no Chromium", "Skipped: it is Sunday", "Skipped: no Chromium"])
    ['2 browser tests were skipped: no Chromium. Install it with: apt-get install chromium chromium-driver']
    >>> closing_lines(["Skipped: no networks and images in data"])
    ['1 test on real data was skipped: no networks and images. Set HEAT_OOD_DATA to the folder that holds nets.py']
    """
    skipped, lines = list(reasons), []
    for lack, (one, several, remedy) in REMEDIES.items():
        if count := sum(lack in reason for reason in skipped):
            kinds, were = (one, "was") if count == 1 else (several, "were")
            lines.append(f"{count} {kinds} {were} skipped: {lack}. {remedy}")
    return lines


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, Any, Any]:
    """After all other summaries; pytest's own line of counts follows."""
    result = yield
    skipped = terminalreporter.stats.get("skipped", [])
    for line in closing_lines(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)):
        terminalreporter.write_line(line, yellow=True)
    return result
