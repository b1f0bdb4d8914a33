"""The options that say which model reads images, and how: the same for every command that takes images."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..files import restored
from ._options import FROM_IMAGES

if TYPE_CHECKING:
    from ..energies import Energy
    from ..features import Extractor, Seen
    from ..images import ImageSet, Preprocessing

__all__ = ["PRETRAINED", "ModelOptions", "layer_names", "with_model_options"]

FOLDER_SIZE = 224
"""Of the images of a folder, where neither the model nor the user says."""

PRETRAINED = "pretrained"
"""Where a model's weights came from, if timm fetched them."""


def numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not numbers with commas between, as 0.485,0.456,0.406.", param_hint=option
        ) from None


@dataclass(frozen=True)
class ModelOptions:
    """Which model reads images, and how they are prepared for it: the options of every command that takes images."""

    model: Annotated[
        str | None,
        typer.Option(
            help="timm:NAME, or package.module:function that returns an nn.Module.", rich_help_panel=FROM_IMAGES
        ),
    ] = None
    weights: Annotated[
        Path | None, typer.Option(help="The model's weights, a .safetensors file.", rich_help_panel=FROM_IMAGES)
    ] = None
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Fetch timm's own weights.", rich_help_panel=FROM_IMAGES)
    ] = False
    layers: Annotated[
        str | None,
        typer.Option(help="Earlier layers to pool: stages, or names with commas between.", rich_help_panel=FROM_IMAGES),
    ] = None
    head: Annotated[
        str | None,
        typer.Option(
            help="The linear head's name, if it is not to be found; none if there is none.", rich_help_panel=FROM_IMAGES
        ),
    ] = None
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Height and width. Default: the model's, if it says; else 224, or an .npz file's own.",
            rich_help_panel=FROM_IMAGES,
        ),
    ] = None
    crop_pct: Annotated[
        float | None,
        typer.Option(
            help="Share of the shorter side that is kept. Default: the model's; 1 with --size.",
            rich_help_panel=FROM_IMAGES,
        ),
    ] = None
    mean: Annotated[
        str | None,
        typer.Option(
            help="Of each channel, in [0, 1]: r,g,b. Default: the model's, else ImageNet's.",
            rich_help_panel=FROM_IMAGES,
        ),
    ] = None
    std: Annotated[str | None, typer.Option(help="Of each channel: r,g,b.", rich_help_panel=FROM_IMAGES)] = None
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Decode every image beforehand; leave out those that fail.",
            rich_help_panel=FROM_IMAGES,
        ),
    ] = False
    batch_size: Annotated[
        int, typer.Option(min=1, help="Images in one pass of the model.", rich_help_panel=FROM_IMAGES)
    ] = 64
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Processes that decode images; with --engine, workers, which decode by themselves.",
            rich_help_panel=FROM_IMAGES,
        ),
    ] = 0
    device: Annotated[
        str | None, typer.Option(help="Where to compute: cpu, cuda, mps, …", rich_help_panel=FROM_IMAGES)
    ] = None

    def preprocessing(self, model: Any, images: ImageSet, seen: Seen | None = None) -> tuple[Preprocessing, str]:
        """How images are prepared, and why so: as a detector saw them, else as the model asks, changed by the options.

        Args:
            model: may say what it wants, as timm's do.
            images: to be prepared.
            seen: by a detector. Options that contradict it are an error.
        """
        from ..features import Seen
        from ..images import Preprocessing

        before = None if seen is None else seen.preprocessing
        config = getattr(model, "pretrained_cfg", None)
        if before is not None:
            found, asked = restored(Preprocessing, dict(before), "preprocessing"), "as the detector was fitted"
        elif config:
            found = Preprocessing.from_config(config if isinstance(config, dict) else vars(config))
            asked = "as the model asks"
        else:
            found, asked = Preprocessing(size=own_size(images) or (FOLDER_SIZE, FOLDER_SIZE)), ""
        found = self.changed(found, keep_crop=before is not None)
        if seen is not None:
            seen.check(Seen(preprocessing=found.to_dict()))
        return found, asked or self.assumed(images)

    def changed(self, found: Preprocessing, keep_crop: bool = False) -> Preprocessing:
        """As the options say, where they say something."""
        if self.size is not None:
            found = replace(found, size=(self.size, self.size), crop_pct=found.crop_pct if keep_crop else 1.0)
        changes: dict[str, Any] = {
            "crop_pct": self.crop_pct,
            "mean": numbers(self.mean, "--mean"),
            "std": numbers(self.std, "--std"),
        }
        return replace(found, **{name: value for name, value in changes.items() if value is not None})

    def assumed(self, images: ImageSet) -> str:
        """What was taken for granted of a model that does not say how its images are prepared."""
        own = first_size(images)
        parts = {"--size": "its size", "--mean": "ImageNet's mean", "--std": "ImageNet's std"}
        if own_size(images) is None:
            parts["--size"] = f"{FOLDER_SIZE} × {FOLDER_SIZE}" + (
                "" if own is None else f" (the first image has {own})"
            )
        given = {"--size": self.size, "--mean": self.mean, "--std": self.std}
        taken = {option: words for option, words in parts.items() if given[option] is None}
        if not taken:
            return "as the options say"
        words = " and ".join(filter(None, [", ".join(list(taken.values())[:-1]), list(taken.values())[-1]]))
        options = " ".join(f"{option} …" for option in taken)
        return f"{words} assumed, as the model does not say; if it was trained otherwise, pass {options}"

    def extractor(self, energy: Energy | None = None) -> Extractor:
        """The model, loaded and hooked; with a detector, by the layers and the head that it was fitted with."""
        import torch

        from ..errors import InputError
        from ..features import Extractor
        from ..models import load_model

        assert self.model is not None
        model = load_model(self.model, self.weights, pretrained=self.pretrained)
        if self.device is not None:
            try:
                model = model.to(torch.device(self.device))
            except (RuntimeError, AssertionError) as error:
                raise InputError(
                    f"The device {self.device!r} cannot be used ({str(error).splitlines()[0]}). Leave out --device."
                ) from error
        name, fetched = without_pretrained(self.model)
        weights = PRETRAINED if fetched or self.pretrained else None
        known: dict[str, Any] = {
            "name": name,
            "weights": weights if self.weights is None else str(self.weights.absolute()),
        }
        layers, head = layer_names(self.layers), False if self.head == "none" else self.head
        first = Extractor(model, layers, head, **known)
        wanted = None if energy is None else energy.fingerprint
        if wanted is None or layers is not None or head is not None or first.compute_fingerprint() == wanted:
            return first
        for other in readings(model, energy):
            found = Extractor(model, *other, **known)
            if found.compute_fingerprint() == wanted:
                return found
        return first

    def loader(self, images: ImageSet) -> Any:
        """The images in order, in batches."""
        from torch.utils.data import DataLoader

        return DataLoader(images, batch_size=self.batch_size, num_workers=self.workers, shuffle=False)


def without_pretrained(model: str) -> tuple[str, bool]:
    """A model's name without ``pretrained`` among its settings, and whether it was there."""
    name, _, query = model.partition("?")
    settings = [part for part in query.split("&") if part]
    kept = [part for part in settings if part.partition("=")[0] != PRETRAINED]
    return f"{name}?{'&'.join(kept)}" if kept else name, len(kept) < len(settings)


def readings(model: Any, energy: Energy | None) -> Iterator[tuple[Any, Any]]:
    """Layers and heads that a detector may have been fitted with: those that it knows, else any likely ones."""
    seen, modules = None if energy is None else energy.seen_, dict(model.named_modules())
    if seen is not None:
        layers, head = (
            "stages" if seen.layers == ("stages",) else seen.layers,
            False if seen.head == "none" else seen.head,
        )
        if all(name in modules for name in (*(() if layers == "stages" else layers or ()), head or "")):
            yield layers, head
    reads = () if energy is None else energy.reads
    named = tuple(dict.fromkeys(column.partition("@")[2] for column in reads if "@" in column))
    there = named and all(name in modules for name in named)
    for head in (None, False):
        yield from ((layers, head) for layers in ("stages", *([named] if there else []), None))


def own_size(images: ImageSet) -> tuple[int, int] | None:
    """Height and width of images that all have the same."""
    return read_size(images) if images.uniform else None


def first_size(images: ImageSet) -> str | None:
    from ..errors import HeatError

    try:
        size = read_size(images)
    except (HeatError, OSError):
        return None  # it will be said in its turn
    return f"{size[0]} × {size[1]}"


def read_size(images: ImageSet) -> tuple[int, int]:
    first = images.read(images.rows[0])
    return first.height, first.width


def layer_names(text: str | None) -> str | tuple[str, ...] | None:
    """``stages``, or names with commas between."""
    return text if text in (None, "stages") else tuple(name.strip() for name in (text or "").split(","))


@functools.cache
def parameters() -> tuple[inspect.Parameter, ...]:
    """The fields of :class:`ModelOptions` as parameters of a command."""
    hints = get_type_hints(ModelOptions, include_extras=True)
    return tuple(
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(ModelOptions)
    )


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of :class:`ModelOptions` as options, in place of its parameter ``model_options``."""
    signature, options = inspect.signature(command, eval_str=True), parameters()
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, p in signature.parameters.items()
        if name != "model_options"
    ]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        given = ModelOptions(**{p.name: values.pop(p.name) for p in options})
        command(**values, model_options=given)

    wrapped.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return wrapped
