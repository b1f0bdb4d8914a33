"""``heat-ood demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._options import Json
from .._output import emit, note, show, table
from .._registry import command, defaults_of

__all__ = ["demo"]


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...demo import run

    return defaults_of(run)


@command(order=10, defaults=library)
def demo(
    out: Annotated[Path | None, typer.Option(help="A folder for the picture, the results and the detector.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the split, the network and the detector.")] = None,
    json: Json = False,
) -> None:
    """Train a small network on real digits, fit HEAT to it and see it work; offline, within a minute.

    [dim]Example:[/dim]

      heat-ood demo --out heat-ood-demo
    """
    from ...demo import run

    given: dict[str, Any] = {name: value for name, value in (("out", out), ("seed", seed)) if value is not None}
    result = run(**given, say=note)
    if json:
        emit(result.to_dict())
        return
    header, rows = result.table()
    show(table(header, rows, "FPR95 (fpr_at_95_id) ↓ / AUROC ↑ in percent", rules=[0, len(rows) - 3]))
    for line in result.remarks():
        show(line)
