"""Progress on the terminal, silent where there is none; and text as a terminal may be sent it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["Bars", "Report", "progress_bars", "sample_bar", "visible"]

_UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal does not show but obeys, and what it cannot be sent: control characters but for the end of a line,
those that turn the direction of writing, and halves of characters, as names of files may hold them."""

Report: TypeAlias = Callable[[int, int, dict[str, float]], None]
"""Told (done, total, numbers) after each step."""


def visible(text: str) -> str:
    r"""Foreign text as it can be shown: what would command the terminal stands there as its escape.

    Example:
        >>> print(visible("a\x1b[31mb"))
        a\x1b[31mb
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Bars:
    """One bar for each residual in training, with the numbers that matter beside it."""

    def __init__(self, display: Progress) -> None:
        self.display = display

    def add(self, name: str) -> Report:
        """A bar; call it with (done, total, numbers)."""
        task = self.display.add_task(visible(name), total=None, numbers="")

        def report(done: int, total: int, numbers: dict[str, float]) -> None:
            if done % 10 and done != total:
                return
            text = "  ".join(f"{key} {value:+.3f}" for key, value in numbers.items())
            self.display.update(task, completed=done, total=total, numbers=text)

        return report


@contextmanager
def progress_bars(enabled: bool = True) -> Iterator[Bars]:
    """Bars on standard error while the block runs, if that is a terminal."""
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with _display(enabled, *times, TextColumn("{task.fields[numbers]}")) as display:
        yield Bars(display)


@contextmanager
def sample_bar(
    enabled: bool, description: str, total: int | None, done: int = 0, unit: str = "samples"
) -> Iterator[Callable[[int], None]]:
    """A bar that counts samples and says how many a second, on standard error, if that is a terminal.

    It gives a function that is told how many more are done.

    Args:
        enabled: False shows none.
        description: what is done with the samples.
        total: how many there are; None where that is not known.
        done: how many were done before.
        unit: what is counted.
    """
    with _display(enabled, MofNCompleteColumn(), _Speed(unit), TimeRemainingColumn()) as display:
        task = display.add_task(visible(description), total=total, completed=done)
        yield lambda samples: display.advance(task, samples)


def _display(enabled: bool, *columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    shown = enabled and console.is_terminal
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), *columns, console=console, disable=not shown
    )


class _Speed(ProgressColumn):
    """So many a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(
            "" if speed is None else f"{speed:,.{0 if speed >= 10 else 2}f} {self.unit}/s", style="progress.data.speed"
        )
