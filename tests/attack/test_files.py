"""Damaged and forged files of every format: a clear error or the same score, in bounded time and memory."""

from __future__ import annotations

from pathlib import Path

from harness.pool import run_tries
from harness.tables import files
from harness.tries import BAD, ROUTES, ways

TRIES = 1500
"""``make attack`` does 50,000."""


def test_no_file_changes_a_score_in_silence_or_fails_without_a_word(built: Path) -> None:
    found = [vars(outcome) for outcome in run_tries(TRIES, seed=1, root=built)]
    assert len(found) == TRIES
    broken = [row for row in found if row["outcome"] in BAD]
    assert not broken, (
        f"{len(broken)} of {TRIES} tries (python tests/attack/run.py --seed 1 --replay …)\n{files(found)}"
    )


def test_the_small_attack_takes_every_route() -> None:
    assert {route for route, _ in ways()} == set(range(len(ROUTES)))
    assert len(ways()) < TRIES / 4
