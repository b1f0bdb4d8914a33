"""What experiments with their own sets print and save: a header, a table of rows by set, what one row adds, files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from heat_ood import __version__
from heat_ood.benchmarks import machine
from heat_ood.evaluation import Evaluation

__all__ = ["METRICS", "gain", "header", "save", "table"]

METRICS = {"fpr_at_95_id": "FPR95", "auroc": "AUROC"}
Rows = Mapping[str, Evaluation]


def header(title: str) -> None:
    """Say what is measured, on what, with which versions."""
    print(f"{title}\n{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, heat-ood {__version__}")
    print(f"command: python {' '.join(sys.argv)}\n", flush=True)


def table(title: str, runs: Sequence[Rows], near: Sequence[str], more: Mapping[str, Mapping[str, str]]) -> str:
    """FPR95 (95 % of ID accepted) / AUROC by set, mean over runs, one a seed; ± is their spread.

    Args:
        title: of the first column.
        runs: a row's evaluation by its name, for each seed.
        near: the sets whose AUROC is averaged on its own.
        more: further columns: a cell for each row.
    """
    names = next(iter(runs[0].values())).names
    lines = [
        f"| {' | '.join([title, *names, 'average', '±', 'near AUROC', *more])} |",
        "|---" * (len(names) + 4 + len(more)) + "|",
    ]
    for row in runs[0]:
        found = [r[row] for r in runs]
        cells = [" / ".join(f"{100 * np.mean([getattr(e[s], m) for e in found]):.1f}" for m in METRICS) for s in names]
        fpr, auc = ([100 * getattr(e.average, m) for e in found] for m in METRICS)
        around = [100 * np.mean([e[s].auroc for s in near]) for e in found]
        cells += [f"**{np.mean(fpr):.2f} / {np.mean(auc):.2f}**", f"{np.std(fpr):.2f} / {np.std(auc):.2f}"]
        cells += [f"{np.mean(around):.2f} ± {np.std(around):.2f}", *(column[row] for column in more.values())]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def gain(runs: Sequence[Rows], after: str, before: str) -> str:
    """What one row adds to another, seed by seed."""
    parts = []
    for metric, title in METRICS.items():
        change = [100 * (getattr(r[after].average, metric) - getattr(r[before].average, metric)) for r in runs]
        parts.append(f"{title} {np.mean(change):+.2f} ± {np.std(change):.2f}")
    return f"{after} against {before}, averages, paired by seed: {', '.join(parts)}."


def save(path: Path, about: str | None, body: str, results: Any) -> None:
    """A Markdown file with what was measured and by which command, and the numbers beside it as JSON.

    Args:
        path: of the Markdown file.
        about: the script's docstring: its first line and the usage are left out.
        body: the tables.
        results: what goes into the JSON file; nothing, no file.
    """
    text = (about or "").split("\n\n", 2)[2]
    made = f"Made by `python {' '.join(sys.argv)}`, heat-ood {__version__}, torch {torch.__version__}."
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n{made}\n\n{body}\n")
    if results:
        path.with_suffix(".json").write_text(json.dumps(results, indent=1))
