"""Progress on the terminal; silent where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Bars", "Report", "progress_bars"]

Report = Callable[[int, int, dict[str, float]], None]
"""Told (done, total, numbers) after each step."""


class Bars:
    """One bar for each residual in training, with the numbers that matter beside it."""

    def __init__(self, display: Progress) -> None:
        self.display = display

    def add(self, name: str) -> Report:
        """A bar; call it with (done, total, numbers)."""
        task = self.display.add_task(name, total=None, numbers="")

        def report(done: int, total: int, numbers: dict[str, float]) -> None:
            if done % 10 and done != total:
                return
            text = "  ".join(f"{key} {value:+.3f}" for key, value in numbers.items())
            self.display.update(task, completed=done, total=total, numbers=text)

        return report


@contextmanager
def progress_bars(enabled: bool = True) -> Iterator[Bars]:
    """Bars on standard error while the block runs, if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=console, disable=not (enabled and console.is_terminal)) as display:
        yield Bars(display)
