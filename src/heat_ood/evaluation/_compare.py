"""Several evaluations side by side."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ._evaluation import AVERAGE, CONVENTION, HEADERS, Evaluation
from ._markdown import escape, markdown

__all__ = ["compare"]


def compare(evaluations: Mapping[str, Evaluation]) -> str:
    """A Markdown table of several evaluations on the same sets: a row for each, FPR95 / AUROC, the best in bold."""
    if not evaluations:
        raise InputError("Nothing to compare: pass a mapping from labels to evaluations.")
    names = next(iter(evaluations.values())).names
    for label, evaluation in evaluations.items():
        if set(evaluation.names) != set(names):
            raise InputError(
                f"{label!r} was evaluated on {', '.join(evaluation.names)}, the first on {', '.join(names)}. "
                "Evaluate all on the same OOD sets."
            )

    columns = []
    for name in (*names, None):
        rows = [e.average if name is None else e[name] for e in evaluations.values()]
        fprs, aurocs = [r.cell("fpr_at_95_id") for r in rows], [r.cell("auroc") for r in rows]
        lowest, highest = min(fprs, key=float), max(aurocs, key=float)
        columns.append(
            [f"{embolden(f, f == lowest)} / {embolden(a, a == highest)}" for f, a in zip(fprs, aurocs, strict=True)]
        )
    body = [[escape(label), *cells] for label, cells in zip(evaluations, zip(*columns, strict=True), strict=True)]
    note = f"{HEADERS['fpr_at_95_id']} / {HEADERS['auroc']} in percent, the best of each column in bold; {CONVENTION}."
    return markdown(["", *map(escape, names), AVERAGE], body, note)


def embolden(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text
