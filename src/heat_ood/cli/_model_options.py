"""The options that say which model reads images, and how: the same for every command that takes images."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ._options import FROM_IMAGES

if TYPE_CHECKING:
    from ..features import Extractor
    from ..images import ImageSet, Preprocessing

__all__ = ["ModelOptions", "layer_names", "with_model_options"]

FOLDER_SIZE = 224
"""Of the images of a folder, where neither the model nor the user says."""


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
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images.", rich_help_panel=FROM_IMAGES)] = 0
    device: Annotated[
        str | None, typer.Option(help="Where to compute: cpu, cuda, mps, …", rich_help_panel=FROM_IMAGES)
    ] = None

    def preprocessing(self, model: Any, images: ImageSet) -> Preprocessing:
        """What the model asks for, changed by the options."""
        from ..images import Preprocessing

        config = getattr(model, "pretrained_cfg", None)
        if config:
            found = Preprocessing.from_config(config if isinstance(config, dict) else vars(config))
        else:
            found = Preprocessing(size=None if images.uniform else (FOLDER_SIZE, FOLDER_SIZE))
        if self.size is not None:
            found = replace(found, size=(self.size, self.size), crop_pct=1.0)
        changes: dict[str, Any] = {
            "crop_pct": self.crop_pct,
            "mean": numbers(self.mean, "--mean"),
            "std": numbers(self.std, "--std"),
        }
        return replace(found, **{name: value for name, value in changes.items() if value is not None})

    def extractor(self) -> Extractor:
        """The model, loaded and hooked."""
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
        return Extractor(model, layer_names(self.layers), False if self.head == "none" else self.head)

    def loader(self, images: ImageSet) -> Any:
        """The images in order, in batches."""
        from torch.utils.data import DataLoader

        return DataLoader(images, batch_size=self.batch_size, num_workers=self.workers, shuffle=False)


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
