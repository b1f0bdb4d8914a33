"""Threads on one guard, and processes on one folder: ``make attack`` does the same with more calls and rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.tables import threads, writers

Rows = Callable[..., list[dict[str, Any]]]


def test_eight_threads_get_what_one_gets_and_leave_the_models_as_they_were(rows: Rows) -> None:
    found = rows("threads", 25)
    assert len(found) == 5
    for row in found:
        whole = row["right"] + row["raised"] == row["calls"] == 200
        assert whole and row["raised"] > 0, threads(found)  # noqa: PT018
        assert row["untouched"] == "yes", threads(found)


def test_two_writers_and_a_reader_see_one_of_the_two(rows: Rows) -> None:
    found = rows("writers", 40)
    assert [row["folder"] for row in found] == ["detector", "features", "guard"]
    for row in found:
        assert row["whole"] == row["rounds"] == 40, writers(found)
        assert row["failed"] == row["raw"] == 0 < row["reads"], writers(found)
