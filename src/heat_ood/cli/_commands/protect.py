"""``heat-ood protect``: from images and a model to a calibrated detector in front of it."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._accuracy import accuracy_on
from .._images import images_at
from .._model_options import ModelOptions, with_model_options
from .._options import FALSE_ALARMS, Json
from .._output import emit, facts, note, show
from .._registry import command

if TYPE_CHECKING:
    from ...images import ImageSet

__all__ = ["protect"]


@command(order=12, interrupted="run the same command again to go on", arguments={"model": "model"})
@with_model_options
def protect(
    model_options: ModelOptions,
    train: Annotated[
        Path,
        typer.Option(help="ID images in class folders, best those that the model was trained on; or an .npz file."),
    ],
    held_out: Annotated[
        Path, typer.Option(help="ID images that the model was [bold]not[/bold] trained on, at least 19.")
    ],
    out: Annotated[Path, typer.Option(help="A folder for the guard: detector, weights and features.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew, even if there is a guard.")] = False,
    json: Json = False,
) -> None:
    """Guard a model: from its images to a calibrated detector in front of it, in one step.

    Features are extracted, ID images distorted, a detector fitted and calibrated. Interrupted, the same command goes
    on where it was.

    [dim]Example:[/dim]

      heat-ood protect --model timm:resnet34 --weights net.safetensors --train train/ --held-out val/ --out guard
    """
    from ...features import Features
    from ...guarding import protect as guarded
    from ...guarding import readable

    if model_options.model is None:
        raise typer.BadParameter(
            "say which model to guard: timm:NAME or package.module:function.", param_hint="--model"
        )
    prepare_folder(out, overwrite)
    options = model_options if model_options.layers is not None else replace(model_options, layers="stages")
    sets = {
        name: images_at(path, labels=True, skip_unreadable=options.skip_unreadable)
        for name, path in (("--train", train), ("--held-out", held_out))
    }
    check_sets(sets["--train"], sets["--held-out"])
    extractor = options.extractor()
    preprocessing, why = options.preprocessing(extractor.network, sets["--train"])
    for name, images in sets.items():
        images.preprocessing = preprocessing
        note(f"{len(images):,} images of {name} {images.root}: {preprocessing} ({why})")
    loaders = [options.loader(images) for images in sets.values()]
    if model_options.layers is None:
        extractor = readable(extractor, loaders[0])

    guard = guarded(extractor, loaders[0], loaders[1], out)
    detector = guard.detector
    calibration = detector.require_calibrated()
    right = accuracy_on(Features.open(out / "features" / "held-out"), "the held-out images")
    result: dict[str, Any] = {
        "guard": str(out),
        "model": extractor.name,
        "layers": [*layers_of(detector.reads), "last"],
        "training": len(sets["--train"]),
        "calibration": len(calibration.scores),
        "smallest_fpr": 1 / (calibration.smallest + 1),
        "classes": None if guard.classes is None else list(guard.classes),
        "preprocessing": preprocessing,
        **({} if right is None else right._asdict()),
        "next": f"heat-ood check {out} PHOTO",
    }
    if json:
        emit(result)
        return
    shown = {key: value for key, value in result.items() if key not in ("confidence", "next")}
    shown |= {
        "layers": ", ".join(result["layers"]),
        "training": f"{result['training']:,} images",
        "calibration": f"{result['calibration']:,} held-out images",
        "smallest_fpr": f"{result['smallest_fpr']:.4g}: the smallest false-alarm rate that they allow",
        "classes": "none"
        if guard.classes is None
        else f"{len(guard.classes)}: {', '.join(guard.classes[:5])}" + (", …" if len(guard.classes) > 5 else ""),
        "accuracy": "not known: the held-out images have no labels" if right is None else f"{right}, held-out images",
    }
    show(facts(shown))
    show(f"next: {result['next']}")


def layers_of(reads: tuple[str, ...]) -> list[str]:
    """The earlier layers that columns are of."""
    return list(dict.fromkeys(column.partition("@")[2] for column in reads if "@" in column))


def prepare_folder(out: Path, overwrite: bool) -> None:
    """Refuse a folder with anything but a guard, whole or begun; empty it where that is wanted."""
    from ...errors import InputError
    from ...guarding import belongs

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file. Name a folder for the guard.")
    there = sorted(out.iterdir()) if out.exists() else []
    if strange := [entry.name for entry in there if not belongs(entry.name)]:
        raise InputError(
            f"{out} holds {strange[0]}, which is no part of a guard. Name another folder, so that nothing is lost."
        )
    for entry in there if overwrite else ():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def check_sets(train: ImageSet, held_out: ImageSet) -> None:
    """Refuse sets that cannot be used together, before anything is computed."""
    from ...errors import InputError

    if train.targets is None:
        raise InputError(
            f"The images in {train.root} have no classes. Put each into the folder of its class: TRAIN/CLASS/IMAGE."
        )
    if held_out.classes is not None and train.classes is not None and held_out.classes != train.classes:
        strange = sorted({*train.classes} ^ {*held_out.classes})
        raise InputError(
            f"The classes of --train and --held-out differ: {', '.join(strange[:5])}{', …' * (len(strange) > 5)} "
            "in one of them alone. Held-out images are of the classes of the training images."
        )
    needed = math.ceil(1 / FALSE_ALARMS) - 1
    if len(held_out) < needed:
        raise InputError(
            f"{held_out.root} holds {len(held_out)} images; a false-alarm rate of {FALSE_ALARMS:.0%} takes at least "
            f"{needed} held-out ones. Add more that the model was not trained on."
        )
