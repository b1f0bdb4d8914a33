"""What came of an attack, as Markdown, and into the page that shows it."""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .alarms import pooled
from .tries import BAD

__all__ = ["TABLES", "broken", "write"]

Row = dict[str, Any]
GOOD = ("same", "refused", "answered")


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)]) + "\n"


# Files


def files(rows: Sequence[Row]) -> str:
    """A line a route: damaged, and forged, which is damaged with checksums that hold."""
    counts: dict[tuple[str, str, bool], Counter[str]] = defaultdict(Counter)
    peaks: dict[tuple[str, str, bool], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for row in rows:
        key = (row["kind"], row["route"], row["forged"])
        counts[key][row["outcome"]] += 1
        peaks[key] = max(peaks[key][0], row["seconds"]), max(peaks[key][1], row["megabytes"])
    body = [
        [kind, f"`{route}`", "forged" if forged else "damaged", f"{count.total():,}"]
        + [f"{count[name]:,}" if count[name] else "–" for name in (*GOOD, *BAD)]
        + [f"{peaks[kind, route, forged][0]:.1f}", f"{peaks[kind, route, forged][1]:.0f}"]
        for (kind, route, forged), count in sorted(counts.items())
    ]
    total = Counter(row["outcome"] for row in rows)
    body.append(
        ["all", "", "", f"{total.total():,}"]
        + [f"{total[name]:,}" if total[name] else "–" for name in (*GOOD, *BAD)]
        + [
            f"{max((p[0] for p in peaks.values()), default=0):.1f}",
            f"{max((p[1] for p in peaks.values()), default=0):.0f}",
        ]
    )
    table = markdown(["format", "route", "files", "tries", *GOOD, *BAD, "longest, s", "most, MB"], body)
    return table + examples(rows)


def examples(rows: Sequence[Row], most: int = 40) -> str:
    """What broke a promise, by what it looked like, with a try of each to replay."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in rows:
        if row["outcome"] in BAD:
            note = re.sub(r"/\S+|0x[0-9a-f]+|\d+", "…", row["note"])[:90]
            groups[row["outcome"], row["kind"], row["route"], note].append(row["number"])
    if not groups:
        return ""
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    body = [
        [outcome, kind, f"`{route}`", len(numbers), cell(note), ", ".join(map(str, numbers[:3]))]
        for (outcome, kind, route, note), numbers in ordered[:most]
    ]
    return "\n" + markdown(["outcome", "format", "route", "tries", "what", "replay"], body)


def cell(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text).replace("|", "\\|")


# False alarms


def alarms(rows: Sequence[Row]) -> str:
    """A line a method: its highest rate anywhere; then a line a law, all methods together."""
    rates = sorted({row["fpr"] for row in rows})
    names = dict.fromkeys(row["method"] for row in rows)
    body = []
    for name in names:
        own = [row for row in rows if row["method"] == name]
        cells = []
        for rate in rates:
            of_rate = [row for row in own if row["fpr"] == rate]
            cells.append(f"{100 * mean(of_rate):.2f} ({100 * max(row['rate'] for row in of_rate):.1f})")
        body.append([f"`{name}`", *cells, sum(row["above"] for row in own) or "–"])
    header = ["method", *(f"{100 * rate:g} % asked: mean (highest)" for rate in rates), "above the margin"]
    first = markdown(header, body)

    together: dict[tuple[Any, ...], dict[float, Row]] = defaultdict(dict)
    for row in pooled(rows):
        together[row["law"], row["n"], row["batch"]][row["fpr"]] = row
    body = [
        [*key, *(f"{100 * own[r]['rate']:.2f}{' (above)' * own[r]['above']}" if r in own else "–" for r in rates)]
        for key, own in together.items()
    ]
    header = ["samples of", "calibrated on", "scored by", *(f"{100 * rate:g} % asked" for rate in rates)]
    return f"{first}\n{markdown(header, body)}"


def mean(rows: Sequence[Row]) -> float:
    return sum(row["rate"] for row in rows) / max(1, len(rows))


# Threads and writers


def threads(rows: Sequence[Row]) -> str:
    header = ["model", "threads", "calls", "right", "wrong", "errors of ours", "raised as asked", "model untouched"]
    names = ("model", "threads", "calls", "right", "wrong", "errors", "raised", "untouched")
    return markdown(header, ([row[name] for name in names] for row in rows)) + noted(rows, "model")


def writers(rows: Sequence[Row]) -> str:
    header = [
        "folder",
        "rounds",
        "ends as one of the two",
        "unreadable",
        "reads",
        "reads that failed",
        "refused",
        "raw errors",
    ]
    names = ("folder", "rounds", "whole", "unreadable", "reads", "failed", "refused", "raw")
    return markdown(header, ([row[name] for name in names] for row in rows)) + noted(rows, "folder")


def noted(rows: Sequence[Row], name: str) -> str:
    """What went wrong, where anything did, each kind of it once."""
    found = dict.fromkeys((row[name], re.sub(r"/\S+|\d+", "…", note)) for row in rows for note in row["notes"])
    lines = [[what, cell(note)] for what, note in found]
    return "\n" + markdown([name, "what"], lines) if lines else ""


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "files": files,
    "alarms": alarms,
    "threads": threads,
    "writers": writers,
}


def broken(part: str, rows: Sequence[Row]) -> int:
    """How often a promise was broken."""
    if part == "files":
        return sum(row["outcome"] in BAD for row in rows)
    if part == "alarms":
        return sum(row["above"] for row in (*rows, *pooled(rows)))
    if part == "threads":
        return sum(row["wrong"] + row["errors"] + (row["untouched"] != "yes") for row in rows)
    return sum(row["unreadable"] + row["failed"] + row["raw"] for row in rows)


def write(page: Path, found: dict[str, list[Row]], given: argparse.Namespace) -> None:
    """Replace the blocks of the parts that were run."""
    import torch

    from heat_ood import __version__
    from heat_ood.benchmarks import machine

    text = page.read_text(encoding="utf-8")
    about = f"{datetime.now(UTC):%Y-%m-%d}, heat-ood {__version__}, torch {torch.__version__}, {machine()}."
    blocks = {part: f"\n{about}\n\n{TABLES[part](rows)}\n" for part, rows in found.items()}
    for name, block in blocks.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        if end not in rest:
            raise SystemExit(f"{page} has no place for {name}: {start} … {end}")
        text = before + start + "\n" + block + end + rest.partition(end)[2]
    page.write_text(text, encoding="utf-8")
