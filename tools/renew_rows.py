"""Rows of a table of results anew, from another run of the same suite.

    python tools/renew_rows.py docs/results/shared-cifar10/main docs/results/shared-cifar10/residual ebm

Puts the named rows of the second folder's results in the place of the first's, or behind them where it has none, writes
all of its files again, and notes which rows came from which command. For a method that changed, or one that takes too
long to run with the rest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heat_ood.report import write_report
from heat_ood.results import Results

SAME = ("suite", "id", "backbone", "groups", "apart")
"""What two runs must share for their rows to stand in one table."""
RENEWED = "renewed"
"""The key, among what is known of the run, of the commands by the row."""


def renewed(old: Results, new: Results, names: Sequence[str]) -> Results:
    """The old results with the named rows of the new."""
    if different := [key for key in SAME if getattr(old, key) != getattr(new, key)]:
        sys.exit(f"The two runs differ in {', '.join(different)}: their rows are of different tables.")
    fresh = {entry.name: entry for entry in new.measured}
    if lacking := [name for name in names if name not in fresh]:
        sys.exit(f"The new run has no row {lacking[0]!r}. It has {', '.join(fresh)}.")
    there = {entry.name for entry in old.measured}
    rows = [fresh[e.name] if e.kind != "paper" and e.name in names else e for e in old.entries]
    rows += [fresh[name] for name in names if name not in there]
    told = {**old.about.get(RENEWED, {}), **{name: new.about.get("command", new.experiment) for name in names}}
    return replace(old, entries=tuple(rows), about={**old.about, RENEWED: told})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the results to mend")
    parser.add_argument("source", type=Path, help="of the newer results")
    parser.add_argument("rows", nargs="+")
    options = parser.parse_args(arguments)
    old, new = (Results.load(folder / "results.json") for folder in (options.folder, options.source))
    results = renewed(old, new, options.rows)
    for suffix in (".json", ".md", ".csv", ".tex"):
        results.save(options.folder / f"results{suffix}")
    write_report([results], options.folder / "report.html")


if __name__ == "__main__":
    main()
