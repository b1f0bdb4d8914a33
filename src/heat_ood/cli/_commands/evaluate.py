"""``heat-ood evaluate``: how well a saved detector tells ID from OOD sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._model_options import ModelOptions, with_model_options
from .._options import Detector, Json, Members
from .._output import emit, show, table
from .._registry import command
from .._source import Source

__all__ = ["evaluate"]


@command(order=80)
@with_model_options
def evaluate(
    model_options: ModelOptions,
    detector: Detector,
    id: Annotated[Path, typer.Option("--id", help="ID test samples, used neither to fit nor to calibrate.")],
    ood: Annotated[list[str], typer.Option(help="NAME=FEATURES of an OOD set; give it several times for several.")],
    save: Annotated[
        list[Path] | None, typer.Option(help="Write the table to a .md, .json or .csv file; may be repeated.")
    ] = None,
    member: Members = None,
    json: Json = False,
) -> None:
    """Measure how well a detector tells ID from OOD sets, with bootstrap intervals.

    [dim]Example:[/dim]

      heat-ood evaluate detector --id features/test --ood svhn=features/svhn --ood dtd=features/dtd --save out.md
    """
    from ...energies import Energy
    from ...evaluation import CONVENTION, HEADERS
    from ...evaluation import evaluate as evaluate_sets
    from ...metrics import METRICS

    paths = dict(named(text) for text in ood)
    if len(paths) < len(ood):
        raise typer.BadParameter("two OOD sets have the same name; write NAME=FEATURES.", param_hint="--ood")
    for file in save or ():
        if file.suffix.lower() not in (".md", ".json", ".csv"):
            raise typer.BadParameter(f"{file.name} should end in .md, .json or .csv.", param_hint="--save")
    energy = Energy.load(detector)
    with Source(model_options, energy, member) as source:
        sets = {name: source.open(path).data for name, path in paths.items()}
        result = evaluate_sets(energy, source.open(id).data, sets)
    for file in save or ():
        result.save(file)
    if json:
        emit(result.to_dict())
        return
    rows = [
        [row.name, f"{row.n_ood:,}", *(row.cell(metric, intervals=True) for metric in METRICS)]
        for row in (*result, result.average)
    ]
    title = f"{result.average.n_id:,} ID samples; percent, with {100 * result.level:g} % intervals; {CONVENTION}"
    show(table(["OOD set", "n", *HEADERS.values()], rows, title, rules=[len(result) - 1]))


def named(text: str) -> tuple[str, Path]:
    """``svhn=features/svhn``, or a path alone, which is called by its last part."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and name else (Path(text).stem, Path(text))
