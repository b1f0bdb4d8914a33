"""``heat-ood calibrate``, ``score`` and ``evaluate``: a saved detector on features or images."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._defaults import library_defaults
from ._output import emit, facts, note, show, table
from ._source import Members, Recipe, Source, with_recipe

if TYPE_CHECKING:
    from ..energies import Energy

__all__ = ["calibrate", "evaluate", "score"]

Detector = Annotated[Path, typer.Argument(help="A folder that heat-ood fit wrote.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@with_recipe
def calibrate(
    recipe: Recipe,
    detector: Detector,
    features: Annotated[
        Path,
        typer.Argument(
            help="Held-out ID features (or images, with --model) that the backbone was [bold]not[/bold] trained on."
        ),
    ],
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Let the false-alarm rate hold for each predicted class.")
    ] = False,
    member: Members = None,
    json: Json = False,
) -> None:
    """Give a detector p-values and decisions; it is saved in place.

    [dim]Example:[/dim]

      heat-ood calibrate detector features/held-out
    """
    from ..energies import Energy

    energy = Energy.load(detector)
    with Source(recipe, energy, member) as source:
        energy.calibrate(source.open(features).data, per_class=per_class)
    energy.save(detector)
    assert energy.calibration is not None
    smallest = 1 / (energy.calibration.smallest + 1)
    result = {
        "detector": str(detector),
        "calibration": len(energy.calibration.scores),
        "per_class": per_class,
        "smallest_fpr": smallest,
    }
    if json:
        emit(result)
    else:
        show(facts({**result, "smallest_fpr": f"{smallest:.4g}"}))


@with_recipe
def score(
    recipe: Recipe,
    detector: Detector,
    features: Annotated[Path, typer.Argument(help="Stored features, or images with --model.")],
    fpr: Annotated[float | None, typer.Option(help="The false-alarm rate of the decision.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all samples to this file.")] = None,
    limit_rows: Annotated[
        int, typer.Option(min=0, help="How many samples the terminal shows, the most unusual first.")
    ] = 20,
    fail_on_ood: Annotated[
        bool, typer.Option("--fail-on-ood", help="Exit with 3 if any sample is judged OOD.")
    ] = False,
    member: Members = None,
    json: Json = False,
) -> None:
    """Score samples: higher = more out-of-distribution; with p-value and decision if the detector is calibrated.

    [dim]Examples:[/dim]

      heat-ood score detector features/new --fpr 0.01 --csv scores.csv

      heat-ood score detector photos/ --model timm:resnet34 --pretrained --fail-on-ood
    """
    from ..energies import Energy

    energy = Energy.load(detector)
    decide = energy.calibrated or fpr is not None or fail_on_ood
    rate = float(library_defaults("score")["fpr"]) if fpr is None else fpr
    if decide:
        energy.require_calibrated().check(rate)
    with Source(recipe, energy, member) as source:
        found, names, size = source.open(features)
        columns: dict[str, list[Any]] = {"sample": list(range(size))}
        if names is not None:
            columns["file"] = list(names)
        scores, classes = judged(energy, found)
        columns["score"] = scores.tolist()
        if decide:
            p_values = energy.p_values_of(scores, classes)
            columns |= {"p_value": p_values.tolist(), "ood": (p_values <= rate).tolist()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    flagged = sum(columns["ood"]) if decide else None
    if csv_file is not None:
        write_csv(csv_file, list(columns), rows)
    if json:
        emit(
            {
                "detector": str(detector),
                "fpr": rate if decide else None,
                "samples": len(rows),
                "flagged": flagged,
                "rows": rows,
            }
        )
    else:
        report(rows, flagged, rate, limit_rows)
    if not decide:
        note(
            "note: the detector is not calibrated, so there are no p-values. Run heat-ood calibrate with held-out ID "
            "features."
        )
    if fail_on_ood and flagged:
        raise typer.Exit(3)


def judged(energy: Energy, data: Any) -> tuple[Any, Any]:
    """Scores and, where the calibration is per class, the predicted classes; images go through a model once."""
    from ..energies import InputEnergy, predicted

    per_class = energy.calibration is not None and energy.calibration.per_class
    if isinstance(energy, InputEnergy):
        found = energy.assess(data)
        return found.scores, found.classes if per_class else None
    return energy.score(data), predicted(data) if per_class else None


def report(rows: list[dict[str, Any]], flagged: int | None, fpr: float, limit: int) -> None:
    shown = sorted(rows, key=lambda row: -row["score"])[:limit]
    if shown:
        title = f"the {len(shown)} most unusual of {len(rows):,} samples" if len(shown) < len(rows) else None
        show(table(list(shown[0]), [[cell(name, value) for name, value in row.items()] for row in shown], title))
    if flagged is None:
        show(f"{len(rows):,} samples")
    else:
        share = f" ({100 * flagged / len(rows):.1f} %)" if rows else ""
        show(f"{flagged:,} of {len(rows):,} samples{share} judged OOD at a false-alarm rate of {fpr:g}")


def cell(name: str, value: Any) -> str:
    if name == "ood":
        return "OOD" if value else "ID"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def write_csv(file: Path, header: list[str], rows: list[dict[str, Any]]) -> None:
    part = file.with_name(file.name + ".part")
    with open(part, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(part, file)


@with_recipe
def evaluate(
    recipe: Recipe,
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
    from ..energies import Energy
    from ..evaluation import CONVENTION, HEADERS
    from ..evaluation import evaluate as evaluate_sets
    from ..metrics import METRICS

    paths = dict(named(text) for text in ood)
    if len(paths) < len(ood):
        raise typer.BadParameter("two OOD sets have the same name; write NAME=FEATURES.", param_hint="--ood")
    for file in save or ():
        if file.suffix.lower() not in (".md", ".json", ".csv"):
            raise typer.BadParameter(f"{file.name} should end in .md, .json or .csv.", param_hint="--save")
    energy = Energy.load(detector)
    with Source(recipe, energy, member) as source:
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
