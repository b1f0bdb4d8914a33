"""``heat-ood evaluate``: how well a saved detector tells ID from OOD sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._model_options import ModelOptions, with_model_options
from .._options import Detector, Json, Members
from .._output import console, emit, show, table
from .._registry import command
from .._source import Opened, Source

if TYPE_CHECKING:
    from rich.table import Table

    from ...energies import Energy
    from ...evaluation import Evaluation

__all__ = ["evaluate"]

NARROW = 80
"""Columns that every terminal has."""
SHOWN = ("auroc", "fpr_at_95_id", "fpr_at_95_ood")
"""The metrics of a narrow table."""


@command(order=80)
@with_model_options
def evaluate(
    model_options: ModelOptions,
    detector: Detector,
    id: Annotated[Path, typer.Option("--id", help="ID test samples, used neither to fit nor to calibrate.")],
    ood: Annotated[list[str], typer.Option(help="NAME=FEATURES of an OOD set; give it several times for several.")],
    save: Annotated[
        list[Path] | None,
        typer.Option(
            help="Write all metrics to a .md, .json or .csv file; may be repeated. heat-ood report reads the .json."
        ),
    ] = None,
    thumbnails: Annotated[
        bool,
        typer.Option(
            help="Keep small copies of the images that are judged most wrongly in the .json, where their files are "
            "known."
        ),
    ] = True,
    member: Members = None,
    json: Json = False,
) -> None:
    """Measure how well a detector tells ID from OOD sets, with bootstrap intervals.

    [dim]Example:[/dim]

      heat-ood evaluate detector --id features/test --ood svhn=features/svhn --ood dtd=features/dtd --save out.json
    """
    from ...energies import Energy
    from ...evaluation import evaluate_scores, unusual
    from ...metrics import as_array

    paths = dict(named(text) for text in ood)
    if len(paths) < len(ood):
        raise typer.BadParameter("two OOD sets have the same name; write NAME=FEATURES.", param_hint="--ood")
    for file in save or ():
        if file.suffix.lower() not in (".md", ".json", ".csv"):
            raise typer.BadParameter(f"{file.name} should end in .md, .json or .csv.", param_hint="--save")
    kept = thumbnails and any(file.suffix.lower() == ".json" for file in save or ())
    energy = Energy.load(detector)
    with Source(model_options, energy, member) as source:
        sets = {name: source.open(path) for name, path in paths.items()}
        known = source.open(id)
        scores = {name: as_array(energy.score(opened.data)) for name, opened in sets.items()}
        id_scores = as_array(energy.score(known.data))
        facts = about(energy, detector, id, known, model_options)
    result = replace(evaluate_scores(id_scores, scores, curves=True), about=facts)
    if kept:
        found = unusual(facts["method"], id_scores, images_of(id, known), facts["id"])
        for name, opened in sets.items():
            found += unusual(facts["method"], id_scores, images_of(paths[name], opened), name, scores[name])
        result = replace(result, pictures=found)
    for file in save or ():
        result.save(file)
    if json:
        emit(replace(result, curves={}, pictures=()).to_dict())
    else:
        show(shown(result))


def named(text: str) -> tuple[str, Path]:
    """``svhn=features/svhn``, or a path alone, which is called by its last part."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and name else (Path(text).stem, Path(text))


# The table


def shown(result: Evaluation) -> Table:
    """All metrics where the terminal is wide enough, else the three that matter most, in 80 columns."""
    from ...metrics import METRICS

    terminal, wide = console(), console(width=10 * NARROW)
    whole = rows_of(result, METRICS, " ")
    if terminal.is_terminal and wide.measure(whole).maximum <= terminal.width:
        return whole
    few = rows_of(result, SHOWN, "\n")
    few.caption = (
        "fpr_at_95_id: share of OOD accepted when 95 % of ID is; fpr_at_95_ood: share of ID rejected when 95 % of OOD "
        "is caught. AUPR: with --json, --save, or a wider terminal."
    )
    few.caption_justify = "left"
    few.columns[0].no_wrap, few.columns[0].overflow = False, "fold"
    if wide.measure(few).maximum > NARROW:
        few.width = NARROW
    return few


def rows_of(result: Evaluation, metrics: tuple[str, ...], between: str) -> Table:
    from ...evaluation import CONVENTION, HEADERS

    rows = [
        [row.name, f"{row.n_ood:,}", *(between.join(row.cell(m, intervals=True).split(" ", 1)) for m in metrics)]
        for row in (*result, result.average)
    ]
    title = f"{result.average.n_id:,} ID samples; percent, with {100 * result.level:g} % intervals; {CONVENTION}"
    return table(["OOD set", "n", *(HEADERS[m] for m in metrics)], rows, title, rules=[len(result) - 1])


# What a report shows besides


def about(energy: Energy, detector: Path, id: Path, known: Opened, options: ModelOptions) -> dict[str, Any]:
    """What was evaluated, when and on what."""
    from datetime import UTC, datetime

    from ... import __version__
    from ...features import Features, accuracy_of
    from .._sidecar import read_sidecar

    network = (read_sidecar(id) or {}).get("model") or options.model
    right = accuracy_of(known.data) if isinstance(known.data, Features) else None
    return {
        "method": "HEAT" if energy.name == "heat" else energy.name,
        "id": id.stem,
        **({"backbone": network} if network else {}),
        **({"accuracy": right[0]} if right is not None else {}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "detector": str(detector),
        "versions": {"heat-ood": __version__},
    }


def images_of(path: Path, opened: Opened) -> list[tuple[str, Callable[[], Any]]] | None:
    """Of each sample the name of its image, and how to read it; None where the images are not at hand."""
    from ...errors import HeatError
    from ...images import open_images
    from .._sidecar import read_sidecar

    record = read_sidecar(path)
    try:
        images = open_images(Path(record["images"]) if record else path, labels=False)
    except (HeatError, OSError, KeyError, TypeError):
        return None
    if opened.names is not None:
        rows = dict(zip(images.files or (), images.rows, strict=False))
        if not all(name in rows for name in opened.names):
            return None
        return [(name, partial(images.read, rows[name])) for name in opened.names]
    if record and record.get("files") is None and record.get("sources") is not None:
        return None  # distorted images, in another order than their files
    if len(images) != opened.size or images.files is not None:
        return None
    return [(f"image {i}", partial(images.read, row)) for i, row in enumerate(images.rows)]
