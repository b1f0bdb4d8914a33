"""What a command's arguments name: stored features, or images and the model that reads them."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from ._output import note

if TYPE_CHECKING:
    from ..energies import Energy, InputEnergy
    from ..features import Extractor
    from ..images import ImageSet, Preprocessing

__all__ = ["Members", "Recipe", "Source", "layer_names", "loader_of", "with_recipe"]

PANEL = "From images"
Members = Annotated[
    list[Path] | None,
    typer.Option(
        "--member",
        help="Weights of a further member of an ensemble, beside --weights; give it several times for several.",
        rich_help_panel=PANEL,
    ),
]
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
class Recipe:
    """How images become features; its fields are the options of every command that takes images."""

    model: Annotated[
        str | None,
        typer.Option(help="timm:NAME, or package.module:function that returns an nn.Module.", rich_help_panel=PANEL),
    ] = None
    weights: Annotated[
        Path | None, typer.Option(help="The model's weights, a .safetensors file.", rich_help_panel=PANEL)
    ] = None
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Fetch timm's own weights.", rich_help_panel=PANEL)
    ] = False
    layers: Annotated[
        str | None,
        typer.Option(help="Earlier layers to pool: stages, or names with commas between.", rich_help_panel=PANEL),
    ] = None
    head: Annotated[
        str | None,
        typer.Option(
            help="The linear head's name, if it is not to be found; none if there is none.", rich_help_panel=PANEL
        ),
    ] = None
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Height and width. Default: the model's, if it says; else 224, or an .npz file's own.",
            rich_help_panel=PANEL,
        ),
    ] = None
    crop_pct: Annotated[
        float | None,
        typer.Option(
            help="Share of the shorter side that is kept. Default: the model's; 1 with --size.", rich_help_panel=PANEL
        ),
    ] = None
    mean: Annotated[
        str | None,
        typer.Option(
            help="Of each channel, in [0, 1]: r,g,b. Default: the model's, else ImageNet's.", rich_help_panel=PANEL
        ),
    ] = None
    std: Annotated[str | None, typer.Option(help="Of each channel: r,g,b.", rich_help_panel=PANEL)] = None
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable", help="Decode every image beforehand; leave out those that fail.", rich_help_panel=PANEL
        ),
    ] = False
    batch_size: Annotated[int, typer.Option(min=1, help="Images in one pass of the model.", rich_help_panel=PANEL)] = 64
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode images.", rich_help_panel=PANEL)] = 0
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, mps, …", rich_help_panel=PANEL)] = (
        None
    )

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


def layer_names(text: str | None) -> str | tuple[str, ...] | None:
    """``stages``, or names with commas between."""
    return text if text in (None, "stages") else tuple(name.strip() for name in (text or "").split(","))


def with_recipe(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`Recipe` in place of its argument ``recipe``."""
    hints = get_type_hints(Recipe, include_extras=True)
    names = [f.name for f in fields(Recipe)]
    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(Recipe)
    ]
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in signature.parameters.items() if name != "recipe"
    ]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        recipe = Recipe(**{name: values.pop(name) for name in names})
        command(**values, recipe=recipe)

    wrapped.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return wrapped


def loader_of(images: ImageSet, recipe: Recipe) -> Any:
    """The images in order, in batches."""
    from torch.utils.data import DataLoader

    return DataLoader(images, batch_size=recipe.batch_size, num_workers=recipe.workers, shuffle=False)


class Opened(NamedTuple):
    """Features, or a loader of images; the name of each sample where it has one, and how many there are."""

    data: Any
    names: Sequence[str] | None
    size: int


class Source:
    """Opens the feature arguments of one command; the model, if there is one, is loaded once.

    Features of images live in a temporary folder as long as the source does.

    Args:
        recipe: how images become features.
        energy: the detector, which gets the models where it runs them itself.
        members: weights of the further models of an ensemble.
        labels: read the labels of images too.
    """

    def __init__(
        self, recipe: Recipe, energy: Energy, members: Sequence[Path] | None = None, labels: bool = False
    ) -> None:
        if members and energy.name != "ensemble":
            raise typer.BadParameter(f"an ensemble has members, and {energy.name} has none.", param_hint="--member")
        self.recipe, self.energy, self.members, self.labels = recipe, energy, members or (), labels
        self.stack = ExitStack()
        self.extractor: Extractor | None = None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def open(self, path: Path) -> Opened:
        """What the detector reads: features, stored or of images, or the images themselves."""
        from ..energies import InputEnergy
        from ..errors import InputError
        from ..features import FEATURES_FILE, Features
        from ._sidecar import read_sidecar

        if not path.exists():
            raise InputError(
                f"There is no {path}. Pass a folder that heat-ood extract wrote, or images together with --model."
            )
        energy, stored = self.energy, (path / FEATURES_FILE).exists()
        if isinstance(energy, InputEnergy) and (not self.recipe.model or stored) and not (energy.stored and stored):
            where = f"{path} holds stored features" if stored else "there is no --model"
            raise InputError(f"{energy.name} reads {energy.reads[0]}: pass images and --model; {where}.")
        if stored or (path.is_dir() and not self.recipe.model and not looks_like_images(path)):
            features = Features.open(path)
            files = (read_sidecar(path) or {}).get("files")
            return Opened(features, files if files is not None and len(files) == len(features) else None, len(features))
        images = self.images(path)
        loader = loader_of(images, self.recipe)
        if isinstance(energy, InputEnergy):
            self.attach(energy)
            return Opened(loader, images.files, len(images))
        assert self.extractor is not None
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="heat-ood-"))
        return Opened(self.extractor.extract(loader, folder, description=path.name), images.files, len(images))

    def images(self, path: Path) -> ImageSet:
        """The images as the model wants them."""
        from ..errors import InputError
        from ..images import open_images

        images = open_images(path, labels=self.labels, skip_unreadable=self.recipe.skip_unreadable)
        if self.recipe.model is None:
            raise InputError(
                f"{path} holds images, not stored features. Say which model reads them with --model, or run "
                "heat-ood extract first."
            )
        if self.extractor is None:
            self.extractor = self.recipe.extractor()
        images.preprocessing = self.recipe.preprocessing(self.extractor.network, images)
        note(f"{len(images):,} images of {path}: {images.preprocessing}")
        return images

    def attach(self, energy: InputEnergy) -> None:
        """Give a detector its models, once."""
        if not energy.extractors:
            others = [replace(self.recipe, weights=file, pretrained=False).extractor() for file in self.members]
            assert self.extractor is not None
            energy.attach(self.extractor, *others)


def looks_like_images(folder: Path) -> bool:
    from ..images import images_below

    return bool(images_below(folder))
