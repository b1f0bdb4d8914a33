"""``heat-ood report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._options import Json
from .._output import emit, facts, show
from .._registry import command

__all__ = ["report"]


@command(order=120)
def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="What heat-ood benchmark (results.json, or its folder) and heat-ood evaluate --save wrote (.json)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    json: Json = False,
) -> None:
    """Write results as one HTML page that needs no network; several are compared side by side.

    [dim]Example:[/dim]

      heat-ood report results/cifar10/main results/cifar100/main --out report.html

      heat-ood report evaluation.json
    """
    from ...report import lost, summary, write_report
    from ...results import read_results

    if out.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"{out.name} should end in .html.", param_hint="--out")
    found = [read_results(path / "results.json" if path.is_dir() else path) for path in results]
    write_report(found, out)
    words = [[text for text in (*summary(r), lost(r)) if text] for r in found]
    if json:
        runs = [{"suite": r.suite, "experiment": r.experiment, "summary": w} for r, w in zip(found, words, strict=True)]
        emit({"report": str(out), "results": runs})
        return
    for texts in words:
        for text in (*texts, ""):
            show(text)
    show(facts({"report": out}))
