"""Images from a folder or an ``.npz`` file, resized, cropped and normalised as a model expects them."""

from __future__ import annotations

import math
import os
import zipfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from .errors import InputError

__all__ = ["ImageSet", "Preprocessing", "UnreadableImageError", "open_images"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class UnreadableImageError(InputError):
    """A file that is no image, or a damaged one."""

    def __init__(self, message: str) -> None:
        # A loader's worker process sends its whole traceback as the message; the last line is ours.
        super().__init__(message.strip().splitlines()[-1].removeprefix(f"{__name__}.{type(self).__name__}: "))


@dataclass(frozen=True)
class Preprocessing:
    """From a decoded image to a normalised tensor (c, h, w).

    The shorter side is resized to ``size / crop_pct`` and the centre is cropped. A mean of one number makes grey ones.

    Args:
        size: height and width; None leaves images as they are.
        mean: of each channel, for values in [0, 1].
        std: of each channel.
        interpolation: ``nearest``, ``bilinear``, ``bicubic`` or ``lanczos``.
        crop_pct: the share of the shorter side that the crop keeps.
        squash: resize to a square, whatever the proportions were.

    Example:
        >>> Preprocessing(size=(32, 32))(Image.new("RGB", (64, 48))).shape
        torch.Size([3, 32, 32])
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    interpolation: str = "bilinear"
    crop_pct: float = 1.0
    squash: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) not in (1, 3) or len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise InputError(
                f"Cannot normalise by mean {self.mean} and std {self.std}. Pass three numbers each (or one each "
                "for grey images), std above zero."
            )
        if self.interpolation not in INTERPOLATIONS:
            raise InputError(
                f"There is no interpolation {self.interpolation!r}. There are {', '.join(INTERPOLATIONS)}."
            )
        if not 0 < self.crop_pct <= 1:
            raise InputError(
                f"crop_pct is the share of the image that is kept, above 0 and at most 1, not {self.crop_pct}."
            )
        if self.size is not None and min(self.size) < 1:
            raise InputError(f"Images cannot be {self.size[0]} × {self.size[1]}. Pass a size of at least 1.")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Preprocessing:
        """What timm writes in a model's ``pretrained_cfg``."""
        mode, interpolation = config.get("crop_mode") or "center", config.get("interpolation") or "bicubic"
        if mode not in ("center", "squash"):
            raise InputError(
                f"The model asks for crop_mode {mode!r}, which is not supported. Give --size, --mean and --std."
            )
        return cls(
            size=tuple(config.get("input_size", (3, 224, 224))[1:]),
            mean=tuple(config.get("mean", IMAGENET[0])),
            std=tuple(config.get("std", IMAGENET[1])),
            interpolation="bilinear" if interpolation == "random" else interpolation,
            crop_pct=config.get("crop_pct") or 0.875,
            squash=mode == "squash",
        )

    def __call__(self, image: Image.Image) -> Tensor:
        image = image.convert("RGB" if len(self.mean) == 3 else "L")
        if self.size is not None:
            image = self.resize(image, self.size)
        pixels = np.array(image, dtype=np.float32).reshape(image.height, image.width, -1) / 255
        return (torch.from_numpy(pixels).permute(2, 0, 1) - self.column(self.mean)) / self.column(self.std)

    def resize(self, image: Image.Image, size: tuple[int, int]) -> Image.Image:
        height, width = size
        target = math.floor(height / self.crop_pct), math.floor(width / self.crop_pct)
        if not self.squash:
            h, w = image.height, image.width
            narrow = w * target[0] <= h * target[1]
            target = (int(target[1] * h / w), target[1]) if narrow else (target[0], int(target[0] * w / h))
        if (image.height, image.width) != target:
            image = image.resize((target[1], target[0]), INTERPOLATIONS[self.interpolation])
        top, left = round((target[0] - height) / 2), round((target[1] - width) / 2)
        return image.crop((left, top, left + width, top + height))

    @staticmethod
    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)

    def __str__(self) -> str:
        size = "as they are" if self.size is None else f"{self.size[0]} × {self.size[1]}"
        kept = f", {self.crop_pct:.4g} kept" if self.crop_pct < 1 else ""
        how = "" if self.size is None else f" ({self.interpolation}{kept}{', squashed' if self.squash else ''})"
        return f"{size}{how}, mean {self.mean}, std {self.std}"

    def to_dict(self) -> dict[str, Any]:
        """All settings by name."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


class ImageSet(Dataset[Any]):
    """Images in a fixed order: tensors or, where labels are known, pairs ``(tensor, label)``.

    Args:
        root: the folder or the file.
        rows: which images of it, in order.
        targets: the label of each image, or None.
        classes: the names of the labels, or None.
    """

    def __init__(
        self, root: Path, rows: Sequence[int], targets: np.ndarray[Any, Any] | None, classes: Sequence[str] | None
    ) -> None:
        self.root, self.rows, self.targets = root, rows, targets
        self.classes = None if classes is None else tuple(classes)
        self.preprocessing = Preprocessing()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor | tuple[Tensor, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        x = self.preprocessing(self.read(self.rows[index]))
        return x if self.targets is None else (x, int(self.targets[index]))

    @abstractmethod
    def read(self, row: int) -> Image.Image:
        """One decoded image."""

    @property
    def files(self) -> tuple[str, ...] | None:
        """The name of each image's file within the folder, if it has one."""
        return None

    @property
    def uniform(self) -> bool:
        """Whether all images surely have one size."""
        return False

    @property
    def identity(self) -> dict[str, Any]:
        """Tells whether another set holds the same images in the same order."""
        return {
            "count": len(self),
            "classes": None if self.classes is None else list(self.classes),
            "files": self.files,
        }


class FolderImages(ImageSet):
    """The image files of a folder; see :func:`open_images`."""

    def __init__(
        self, root: Path, names: list[str], rows: Sequence[int], targets: Any, classes: Sequence[str] | None
    ) -> None:
        super().__init__(root, rows, targets, classes)
        self.names = names

    def read(self, row: int) -> Image.Image:
        return decode(self.root / self.names[row])

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.names[row] for row in self.rows)

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "files": list(self.files)}


class ArrayImages(ImageSet):
    """The array ``images`` of an ``.npz`` file, uint8, (n, h, w, 3) or (n, h, w)."""

    def __init__(self, root: Path, images: np.ndarray[Any, Any], rows: Sequence[int], targets: Any) -> None:
        super().__init__(root, rows, targets, None)
        self.images = images

    def read(self, row: int) -> Image.Image:
        return Image.fromarray(self.images[row])

    @property
    def uniform(self) -> bool:
        return True

    @property
    def identity(self) -> dict[str, Any]:
        with zipfile.ZipFile(self.root) as archive:
            sums = {
                entry.filename: entry.CRC
                for entry in archive.infolist()
                if entry.filename in ("images.npy", "labels.npy")
            }
        return {**super().identity, "checksums": sums}


def open_images(
    path: str | PathLike[str], *, labels: bool = True, limit: int | None = None, skip_unreadable: bool = False
) -> ImageSet:
    """The images of a folder, or of an ``.npz`` file with ``images`` and perhaps ``labels``.

    A folder of folders has a class a subfolder, numbered in the order of their names; a flat folder has no labels.

    Args:
        path: the folder or file.
        labels: False leaves them out.
        limit: take only so many, spread evenly over the set.
        skip_unreadable: decode every image beforehand and leave out those that fail.
    """
    root = Path(path)
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, not {limit}.")
    if not root.exists():
        raise InputError(f"There is no {root}. Pass a folder of images, or an .npz file that holds images.")
    if root.is_file():
        return open_npz(root, labels, limit)
    return open_folder(root, labels, limit, skip_unreadable)


def open_folder(root: Path, labels: bool, limit: int | None, skip_unreadable: bool) -> ImageSet:
    flat = images_in(root)
    folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    nested = [[f"{folder.name}/{name}" for name in images_below(folder)] for folder in folders]
    if flat and any(nested):
        raise InputError(
            f"{root} holds images beside folders of images ({flat[0]} beside {folders[0].name}/), so the classes are "
            "not clear. Put every image in the folder of its class, or all in one flat folder."
        )
    names = flat or [name for group in nested for name in group]
    if not names:
        raise InputError(f"There are no images in {root}. Images are files that end in {', '.join(SUFFIXES)}.")
    classes = None if flat or not labels else [folder.name for folder in folders]
    targets = np.repeat(np.arange(len(nested)), [len(group) for group in nested]) if classes is not None else None

    rows = spread(len(names), limit)
    if skip_unreadable:
        rows = [row for row in rows if readable(root / names[row])]
        if not rows:
            raise InputError(f"No image in {root} can be read. Check a file in an image viewer.")
    return FolderImages(root, names, rows, None if targets is None else targets[list(rows)], classes)


def open_npz(file: Path, labels: bool, limit: int | None) -> ImageSet:
    try:
        with np.load(file, allow_pickle=False) as archive:
            images = archive["images"]
            targets = archive["labels"] if labels and "labels" in archive else None
    except (OSError, ValueError, KeyError, AttributeError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{file} is not an .npz file with an array 'images' ({error}). Write one with "
            "numpy.savez(file, images=…, labels=…), or pass a folder of images."
        ) from error
    if (
        images.dtype != np.uint8
        or images.ndim not in (3, 4)
        or (images.ndim == 4 and images.shape[3] != 3)
        or not len(images)
    ):
        raise InputError(
            f"The images in {file} are {images.dtype} of shape {images.shape}. Save them as uint8, (n, height, width, "
            "3), or (n, height, width) if they are grey."
        )
    if targets is not None and (targets.shape != (len(images),) or targets.dtype.kind not in "iu"):
        raise InputError(
            f"The labels in {file} are {targets.dtype} of shape {targets.shape}. Save {len(images)} integers."
        )
    rows = spread(len(images), limit)
    return ArrayImages(file, images, rows, None if targets is None else targets[list(rows)].astype(np.int64))


def images_in(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir() if is_image(f.name) and f.is_file())


def images_below(folder: Path) -> list[str]:
    """Images at any depth, by their path within the folder, sorted."""
    found = []
    for base, _, files in os.walk(folder):
        found += [(Path(base) / name).relative_to(folder).as_posix() for name in files if is_image(name)]
    return sorted(found)


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def spread(n: int, limit: int | None) -> Sequence[int]:
    return range(n) if limit is None or limit >= n else [i * n // limit for i in range(limit)]


def decode(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            image.load()
            return image
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        cause = " ".join(str(error).split())
        raise UnreadableImageError(
            f"The image {file} cannot be read ({cause}). Replace or remove it, or leave out such files "
            "with --skip-unreadable."
        ) from error


def readable(file: Path) -> bool:
    try:
        decode(file)
    except UnreadableImageError:
        return False
    return True
