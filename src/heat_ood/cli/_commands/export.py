"""``heat-ood export``: a guard as one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._images import images_at, pixels_of
from .._model_options import ModelOptions, with_model_options
from .._options import Json
from .._output import emit, facts, note, show
from .._registry import command, defaults_of
from .._source import Source

if TYPE_CHECKING:
    from ...energies import Energy
    from ...features import Guard
    from ...images import Preprocessing

__all__ = ["export"]


def library() -> dict[str, Any]:
    """What the library takes for options that are left out."""
    from ...export import export

    return {"fpr": defaults_of(export)["fpr"]}


@command(order=72, defaults=library, arguments={"preprocessing": "size"})
@with_model_options
def export(
    model_options: ModelOptions,
    detector: Annotated[Path, typer.Argument(help="A folder that heat-ood protect or heat-ood fit wrote, calibrated.")],
    out: Annotated[Path, typer.Option(help="The file: guard.onnx, or guard.pt2 for torch.")],
    fpr: Annotated[float | None, typer.Option(help="The false-alarm rate, where none is given to the graph.")] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Take features instead of images: some stored ones, which show how wide they are."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep the model's weights in 16 bits; needs --compare.")] = False,
    quantise: Annotated[
        bool, typer.Option("--quantise", help="Quantise the model to 8 bits; needs --compare.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="ID and OOD images, on which --half and --quantise are compared with the guard."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a guard as one file: pixels in; logits, score, p-value and decision out. It is compared with the guard.

    [dim]Examples:[/dim]

      heat-ood export guard --out guard.onnx

      heat-ood export detector --model timm:resnet34 --weights net.safetensors --out guard.onnx

      heat-ood export detector --features features/held-out --out detector.onnx
    """
    from ...export import export as exported
    from ...features import Features

    rate = float(library()["fpr"]) if fpr is None else fpr
    settings: dict[str, Any] = {"fpr": rate}
    if features is not None:
        found = exported(detector_in(detector), out, features=Features.open(features), **settings)
    else:
        guard, prepared = guard_in(detector, model_options)
        if half or quantise:
            settings |= {"half": half, "quantise": quantise}
        if compare is not None and (half or quantise):
            settings["compare"] = tuple(batches(path, prepared, model_options) for path in compare)
        known = guard.detector.seen_
        unknown = known is None or known.preprocessing is None or known.preprocessing.get("size") is None
        found = exported(guard, out, preprocessing=prepared if unknown else None, **settings)
    if found.facts.reduced is not None:
        note(str(found.facts.reduced))
    result: dict[str, Any] = {
        "exported": str(out),
        "takes": found.facts.takes,
        "columns": found.columns,
        "outputs": found.facts.outputs,
        "preprocessing": found.preprocessing,
        "calibration": len(found.calibration.scores),
        "fpr": rate,
        "reduced": found.facts.reduced,
        "bytes": out.stat().st_size,
        "next": f"heat-ood check {out} PHOTO" if features is None else f"heat-ood score {out} FEATURES",
    }
    if json:
        emit(result)
        return
    shown = {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in result.items()}
    shown |= {"calibration": f"{result['calibration']:,} samples", "bytes": f"{result['bytes']:,}"}
    show(facts({name: value for name, value in shown.items() if name != "next" and value not in (None, "")}))
    show(f"next: {result['next']}")


def detector_in(folder: Path) -> Energy:
    """The detector of a guard's folder, or of its own."""
    from ...energies import Energy
    from ...guarding import DETECTOR, GUARD_FILE

    return Energy.load(folder / DETECTOR if (folder / GUARD_FILE).exists() else folder)


def guard_in(folder: Path, options: ModelOptions) -> tuple[Guard, Preprocessing | None]:
    """The guard of a folder, or a detector before the model that the options name; and how images are prepared."""
    from ...guarding import GUARD_FILE, LiveJudge, load
    from ...images import Preprocessing

    guard: Guard
    if (folder / GUARD_FILE).exists() and options.model is None:
        guard = load(folder)
    else:
        energy = detector_in(folder)
        guard = Source(options, energy).model_for(folder).guard(energy)
    prepared = LiveJudge(guard).preprocessing
    config = getattr(guard.extractor.network, "pretrained_cfg", None)
    if prepared is None and config:
        prepared = Preprocessing.from_config(config if isinstance(config, dict) else vars(config))
    if options.size is not None and (prepared is None or prepared.size is None):
        prepared = options.changed(prepared or Preprocessing())
    return guard, prepared


def batches(path: Path, prepared: Preprocessing | None, options: ModelOptions) -> Iterator[Any]:
    """The pixels of images, a batch at a time."""
    images = images_at(path, labels=False, skip_unreadable=options.skip_unreadable)
    images.preprocessing = images.preprocessing if prepared is None else prepared
    return pixels_of(images, options.batch_size)
