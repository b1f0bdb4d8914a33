"""What a command's arguments name: stored features, or images and the model that reads them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ._images import images_at
from ._model_options import PRETRAINED, ModelOptions
from ._output import note

if TYPE_CHECKING:
    from ..energies import Energy, InputEnergy
    from ..features import Extractor, Shard
    from ..images import ImageSet

__all__ = ["Source"]


class Opened(NamedTuple):
    """Features, or a loader of images; the name of each sample where it has one, and how many there are."""

    data: Any
    names: Sequence[str] | None
    size: int


class Source:
    """Opens the feature arguments of one command; the model, if there is one, is loaded once.

    Features of images live in a temporary folder as long as the source does.

    Args:
        options: of the model, for images.
        energy: the detector, which gets the models where it runs them itself.
        members: weights of the further models of an ensemble.
        labels: read the labels of images too.
    """

    def __init__(
        self, options: ModelOptions, energy: Energy, members: Sequence[Path] | None = None, labels: bool = False
    ) -> None:
        if members and energy.name != "ensemble":
            raise typer.BadParameter(f"an ensemble has members, and {energy.name} has none.", param_hint="--member")
        self.options, self.energy, self.members, self.labels = options, energy, members or (), labels
        self.stack = ExitStack()
        self.extractor: Extractor | None = None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def open(self, path: Path, shard: Shard | None = None, work: Path | None = None) -> Opened:
        """What the detector reads: features, stored or of images, or the images themselves; or one part of them.

        Args:
            path: the features, or the images.
            shard: the part.
            work: where features of images are kept while they are made, so that who is killed can go on; by default in
                a temporary folder.
        """
        from ..energies import InputEnergy
        from ..errors import InputError
        from ..features import FEATURES_FILE, Features
        from ..files import Mirror, url_of
        from ._sidecar import names_of

        url = url_of(path)
        if url is None and not path.exists() and "{" not in path.name:
            raise InputError(
                f"There is no {path}. Pass a folder that heat-ood extract wrote, or images together with --model."
            )
        energy = self.energy
        stored = (path / FEATURES_FILE).exists() if url is None else Mirror(url).exists(FEATURES_FILE)
        seen = energy.seen_
        model = self.options.model or (seen is not None and seen.model)
        if isinstance(energy, InputEnergy) and (not model or stored) and not (energy.stored and stored):
            where = f"{path} holds stored features" if stored else "there is no --model"
            raise InputError(f"{energy.name} reads {energy.reads[0]}: pass images and --model; {where}.")
        if stored or (path.is_dir() and not self.options.model and not looks_like_images(path)):
            features = Features.open(path)
            names = names_of(path, len(features))
            if shard is not None:
                block = shard.block(len(features))
                features = features[block.start : block.stop]
                names = None if names is None else names[block.start : block.stop]
            return Opened(features, names, len(features))
        images = self.images(path, shard)
        loader = self.options.loader(images)
        if isinstance(energy, InputEnergy):
            self.attach(energy)
            return Opened(loader, images.files, len(images))
        assert self.extractor is not None
        if work is None:
            folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="heat-ood-")))
        else:
            folder = self.lasting(work, images, loader)
        return Opened(self.extractor.extract(loader, folder, description=path.name), images.files, len(images))

    def lasting(self, work: Path, images: ImageSet, loader: Any) -> Path:
        """A folder that bears a digest of the model, the images and their preprocessing; those of others go."""
        assert self.extractor is not None
        about = [self.extractor.compute_fingerprint(), self.extractor.seen(loader).to_dict(), images.identity]
        text = json.dumps([*about, images.preprocessing.to_dict(), self.options.batch_size], default=str)
        folder = work.with_name(f"{work.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}")
        for other in set(work.parent.glob(f"{work.name}-*")) - {folder}:
            shutil.rmtree(other, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return folder

    def images(self, path: Path, shard: Shard | None = None) -> ImageSet:
        """The images as the model wants them and, where there is a detector, as it saw them."""
        part = None if shard is None else shard.block
        images = images_at(path, labels=self.labels, skip_unreadable=self.options.skip_unreadable, part=part)
        if self.extractor is None:
            self.extractor = self.model_for(path)
        images.preprocessing, why = self.options.preprocessing(self.extractor.network, images, self.energy.seen_)
        note(f"{len(images):,} images of {path}: {images.preprocessing} ({why})")
        return images

    def model_for(self, path: Path) -> Extractor:
        """The model that the options name, else the one that the detector was fitted with."""
        from ..energies import InputEnergy
        from ..errors import HeatError, InputError

        seen = self.energy.seen_
        if self.options.model is not None:
            return self.options.extractor(self.energy)
        if seen is None or seen.model is None or ":" not in seen.model:
            raise InputError(
                f"{path} holds images, not stored features. Say which model reads them with --model, or run "
                "heat-ood extract first."
            )
        fetched = seen.weights == PRETRAINED
        weights = self.options.weights or (None if fetched or seen.weights is None else Path(seen.weights))
        options = replace(self.options, model=seen.model, weights=weights, pretrained=fetched)
        told = f"{seen.model}{f' with {seen.weights}' if seen.weights else ''}"
        try:
            extractor = options.extractor(self.energy)
        except HeatError as error:
            raise InputError(
                f"{path} holds images, and the detector was fitted with the model {told}, which cannot be loaded here "
                f"({error}) Say which model reads them with --model and --weights."
            ) from error
        checked = not isinstance(self.energy, InputEnergy)  # those check it when it is attached
        if checked and self.energy.fingerprint not in (None, extractor.fingerprint):
            raise InputError(
                f"{path} holds images, and the detector was fitted with the model {told}, but that has other weights "
                "now. Say which model reads them with --model and --weights."
            )
        note(f"note: images are read by the model that the detector was fitted with, {told}")
        return extractor

    def attach(self, energy: InputEnergy) -> None:
        """Give a detector its models, once."""
        if not energy.extractors:
            others = [replace(self.options, weights=file, pretrained=False).extractor() for file in self.members]
            assert self.extractor is not None
            energy.attach(self.extractor, *others)


def looks_like_images(folder: Path) -> bool:
    from ..images import images_below

    return bool(images_below(folder))
