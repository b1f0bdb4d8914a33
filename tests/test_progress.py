"""Bars on a terminal, and nothing where there is none."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from heat_ood import progress
from heat_ood.progress import progress_bars, sample_bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Standard error as a terminal; what was written there, at last."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    return lambda: out.getvalue().rpartition("\r")[2]


def train(enabled: bool) -> None:
    with progress_bars(enabled) as bars:
        report = bars.add("gmm")
        for step in range(1, 26):
            report(step, 25, {"gap": step / 10})


def count(enabled: bool) -> None:
    with sample_bar(enabled, "extracting", 1000, 200) as advance:
        for _ in range(8):
            advance(100)


def test_training_shows_the_last_numbers(terminal: Callable[[], str]) -> None:
    train(True)
    assert "gmm" in terminal()
    assert "gap +2.500" in terminal()


def test_samples_are_counted_from_where_it_went_on(terminal: Callable[[], str]) -> None:
    count(True)
    assert "extracting" in terminal()
    assert "1000/1000" in terminal()


def test_a_total_need_not_be_known(terminal: Callable[[], str]) -> None:
    with sample_bar(True, "extracting", None) as advance:
        advance(30)
    assert "30/?" in terminal()


@pytest.mark.parametrize("run", [train, count])
@pytest.mark.parametrize("enabled", [False, True])
def test_quiet_off_a_terminal(run: Any, enabled: bool, capfd: pytest.CaptureFixture[str]) -> None:
    run(enabled)
    assert capfd.readouterr() == ("", "")
