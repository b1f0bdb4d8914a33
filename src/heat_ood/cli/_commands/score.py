"""``heat-ood score``: a saved detector on features or images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._engine import with_engine
from .._images import images_at, pixels_of
from .._model_options import ModelOptions, with_model_options
from .._options import Detector, Json, Members, Part, Trust
from .._output import emit_rows, note, show, table
from .._registry import command, defaults_of
from .._score_files import target_of, write_out
from .._source import Source

if TYPE_CHECKING:
    from ...energies import Energy
    from ...features import Shard
from .merge import merge

__all__ = ["score"]

BLOCK = 4096
"""Rows that are made at a time."""


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...energies import Energy

    return defaults_of(Energy.predict)


@command(order=70, defaults=library)
@with_engine(merge)
@with_model_options
def score(
    model_options: ModelOptions,
    detector: Detector,
    features: Annotated[
        Path, typer.Argument(help="Stored features, or images: a folder, an .npz file or an image file.")
    ],
    fpr: Annotated[float | None, typer.Option(help="The false-alarm rate of the decision.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all samples to this file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write all samples to this file, .parquet or .csv, with the predicted class and the energies; with "
            "--shard, a folder."
        ),
    ] = None,
    shard: Part = None,
    limit_rows: Annotated[
        int, typer.Option(min=0, help="How many samples the terminal shows, the most unusual first.")
    ] = 20,
    fail_on_ood: Annotated[
        bool, typer.Option("--fail-on-ood", help="Exit with 3 if any sample is judged OOD.")
    ] = False,
    member: Members = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Score samples: higher = more out-of-distribution; with p-value and decision if the detector is calibrated.

    [dim]Examples:[/dim]

      heat-ood score detector features/new --fpr 0.01 --csv scores.csv

      heat-ood score detector photos/ --model timm:resnet34 --pretrained --fail-on-ood

      heat-ood score detector features/new --out scores --shard 3/64
    """
    from ...energies import Energy
    from ...evaluation import check_ending, rows_of, write_csv
    from ...export import is_exported
    from ...features import Shard

    part = None if shard is None else Shard.of_text(shard)
    target = target_of(part, out, csv_file, detector, features, fpr)
    if target is not None and target.done():
        return
    if out is not None and target is None:
        check_ending(out)
    more: dict[str, Any] = {}
    if is_exported(detector):
        columns, more, rate = exported_columns(detector, features, fpr, model_options, trust, part)
        decide, size = True, len(columns["sample"])
    else:
        energy = Energy.load(detector)
        decide = energy.calibrated or fpr is not None or fail_on_ood
        rate = float(library()["fpr"]) if fpr is None else fpr
        if decide:
            energy.require_calibrated().check(rate)
        with Source(model_options, energy, member) as source:
            found, names, size = source.open(features, part, None if target is None else target.work)
            columns = {"sample": range(size)} | ({} if names is None else {"file": names})
            columns["score"], classes = judged(energy, found)
            if decide:
                columns["p_value"] = energy.p_values_of(columns["score"], classes)
                columns["ood"] = columns["p_value"] <= rate
            more = terms_of(energy, found, classes) if out is not None else {}
    flagged = int(columns["ood"].sum()) if decide else None
    if target is not None:
        target.write(columns if out is None else table_of(columns, more), flagged)
    elif out is not None:
        write_out(out, table_of(columns, more))
    if csv_file is not None and target is None:
        write_csv(csv_file, list(columns), rows_of(columns, range(size)))
    if json:
        about = {"detector": str(detector), "fpr": rate if decide else None, "samples": size, "flagged": flagged}
        emit_rows(about, "rows", rows_of(columns, range(size)))
    else:
        report(columns, flagged, rate, limit_rows)
    if not decide:
        note(
            "note: the detector is not calibrated, so there are no p-values. Run heat-ood calibrate with held-out ID "
            "features."
        )
    if fail_on_ood and flagged:
        raise typer.Exit(3)


def terms_of(energy: Energy, data: Any, classes: Any) -> dict[str, Any]:
    """What a table holds besides scores: the predicted class, its name, and the terms of the score, where known."""
    from ...energies import predicted
    from ...features import Features

    found: dict[str, Any] = {}
    if classes is None and isinstance(data, Features) and "logits" in data.available:
        classes = predicted(data)
    if classes is not None:
        found["class"] = classes
        names = None if energy.seen_ is None else energy.seen_.classes
        if names is not None and (not len(classes) or int(classes.max()) < len(names)):
            found["class_name"] = [names[int(number)] for number in classes]
    terms: Any = getattr(energy, "energies", None)
    if terms is not None and isinstance(data, Features):
        found |= {name: values for name, values in terms(data).items() if name != "score"}
    return found


def table_of(columns: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a table: what names a sample, its class, what was decided, and the terms of the score."""
    first = {"path" if name == "file" else name: columns[name] for name in ("sample", "file") if name in columns}
    first |= {name: more[name] for name in ("class", "class_name") if name in more}
    return {**first, **{name: value for name, value in (*columns.items(), *more.items()) if name != "file"}}


def exported_columns(
    file: Path, data: Path, fpr: float | None, options: ModelOptions, trust: bool, shard: Shard | None
) -> tuple[dict[str, Any], dict[str, Any], float]:
    """What an exported file says of images or of stored features, with its energies, and the rate of its decisions."""
    import torch

    from ...errors import InputError
    from ...export import Exported
    from ...features import FEATURES_FILE, Features

    if options.model is not None:
        raise typer.BadParameter("an exported file needs no model: leave it out.", param_hint="--model")
    judge = Exported(file, trust=trust)
    rate = judge.facts.fpr if fpr is None else fpr
    judge.calibration.check(rate)
    columns: dict[str, Any] = {}
    if (data / FEATURES_FILE).exists():
        stored = Features.open(data)
        block = range(len(stored)) if shard is None else shard.block(len(stored))
        stored = stored[block.start : block.stop]
        if missing := [name for name in judge.columns if name not in stored.available]:
            raise InputError(
                f"{data} has no {', '.join(missing)}, which {file} takes. Extract them with the same layers."
            )
        found = [
            judge.judge_features({name: batch.column(name).numpy() for name in judge.columns})  # type: ignore[union-attr]
            for batch in (stored.batches(BLOCK) if judge.columns else [stored[:1]])
        ]
    elif judge.preprocessing is None:
        raise InputError(f"{file} takes features, and {data} holds none. Pass a folder that heat-ood extract wrote.")
    else:
        part = None if shard is None else shard.block
        images = images_at(data, labels=False, skip_unreadable=options.skip_unreadable, part=part)
        images.preprocessing = judge.preprocessing
        columns = {} if images.files is None else {"file": images.files}
        found = [judge.judge(pixels) for pixels in pixels_of(images, options.batch_size)]
    columns["score"], columns["p_value"] = (
        torch.cat([torch.from_numpy(getattr(one, name)) for one in found]) for name in ("score", "p_value")
    )
    columns["ood"] = columns["p_value"] <= rate
    more: dict[str, Any] = {
        name: torch.cat([torch.from_numpy(one.energies[name]) for one in found]) for name in found[0].energies
    }
    if all(one.logits is not None for one in found):
        more["class"] = torch.cat([torch.from_numpy(one.logits).argmax(1) for one in found])
    return {"sample": range(len(columns["score"])), **columns}, more, rate


def judged(energy: Energy, data: Any) -> tuple[Any, Any]:
    """Scores and, where the calibration is per class, the predicted classes; images go through a model once."""
    from ...energies import InputEnergy, predicted

    per_class = energy.calibration is not None and energy.calibration.per_class
    if isinstance(energy, InputEnergy):
        found = energy.assess(data)
        return found.scores, found.classes if per_class else None
    return energy.score(data), predicted(data) if per_class else None


def report(columns: Mapping[str, Any], flagged: int | None, fpr: float, limit: int) -> None:
    from ...evaluation import rows_of

    size = len(columns["sample"])
    order = columns["score"].argsort(descending=True, stable=True)[:limit].tolist()
    shown = list(rows_of(columns, order))
    if shown:
        title = f"the {len(shown)} most unusual of {size:,} samples" if len(shown) < size else None
        show(table(list(shown[0]), [[cell(name, value) for name, value in row.items()] for row in shown], title))
    if flagged is None:
        show(f"{size:,} samples")
    else:
        share = f" ({100 * flagged / size:.1f} %)" if size else ""
        show(f"{flagged:,} of {size:,} samples{share} judged OOD at a false-alarm rate of {fpr:g}")


def cell(name: str, value: Any) -> str:
    if name == "ood":
        return "OOD" if value else "ID"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
