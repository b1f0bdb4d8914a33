"""``heat-ood score``: a saved detector on features or images."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._model_options import ModelOptions, with_model_options
from .._options import Detector, Json, Members
from .._output import emit, note, show, table
from .._registry import command, defaults_of
from .._source import Source

if TYPE_CHECKING:
    from ...energies import Energy

__all__ = ["score"]


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...energies import Energy

    return defaults_of(Energy.predict)


@command(order=70, defaults=library)
@with_model_options
def score(
    model_options: ModelOptions,
    detector: Detector,
    features: Annotated[
        Path, typer.Argument(help="Stored features, or images: a folder, an .npz file or an image file.")
    ],
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
    from ...energies import Energy

    energy = Energy.load(detector)
    decide = energy.calibrated or fpr is not None or fail_on_ood
    rate = float(library()["fpr"]) if fpr is None else fpr
    if decide:
        energy.require_calibrated().check(rate)
    with Source(model_options, energy, member) as source:
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
    from ...energies import InputEnergy, predicted

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
    from ...files import replacing

    with replacing(file) as part, open(part, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
