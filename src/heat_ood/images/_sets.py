"""Images in a fixed order, of a folder or an array."""

from __future__ import annotations

import os
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import InputError
from ..files import url_of
from ._decoding import UnreadableImageError, decode
from ._preprocessing import Preprocessing

__all__ = ["ArrayImages", "FolderImages", "ImageSet", "file_at", "stamp_of"]

_T = TypeVar("_T")


class ImageSet(Dataset[Any]):
    """Images in a fixed order: tensors or, where labels are known, pairs ``(tensor, label)``.

    Args:
        root: the folder or the file.
        rows: which images of it, in order.
        targets: the label of each image, or None.
        classes: the names of the labels, or None.

    ``skipped`` holds the images that were left out because they cannot be read, by name, with the reason; ``place``,
    where it is one part of a set, the number of its first and how many there are in all, images or tar files.
    """

    def __init__(
        self, root: Path, rows: Sequence[int], targets: np.ndarray[Any, Any] | None, classes: Sequence[str] | None
    ) -> None:
        self.root, self.rows, self.targets = root, rows, targets
        self.classes = None if classes is None else tuple(classes)
        self.preprocessing = Preprocessing()
        self.skipped: Mapping[str, str] = {}
        self.place: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor | tuple[Tensor, int]:
        x = self._prepared(index, self.preprocessing)
        return x if self.targets is None else (x, int(self.targets[index]))

    def pixels(self, index: int) -> np.ndarray[Any, Any]:
        """One image resized and cropped, (h, w, c), uint8, not normalised."""
        return self._prepared(index, self.preprocessing.pixels)

    def _prepared(self, index: int, prepare: Callable[[Image.Image], _T]) -> _T:
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        image = self.read(self.rows[index])
        try:
            return prepare(image)
        except InputError as error:
            name = f"image {index}" if self.files is None else f"image {self.files[index]}"
            raise UnreadableImageError(f"The {name} of {self.root} cannot be used. {error}") from error

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

    @property
    def stamps(self) -> list[tuple[int, int]] | None:
        """The size and the time of change of each file, which tell whether it is still the same; None without files."""
        return None


class FolderImages(ImageSet):
    """The image files of a folder; see :func:`open_images`."""

    def __init__(
        self, root: Path, names: list[str], rows: Sequence[int], targets: Any, classes: Sequence[str] | None
    ) -> None:
        super().__init__(root, rows, targets, classes)
        self.names = names

    def read(self, row: int) -> Image.Image:
        return decode(file_at(self.root, self.names[row]))

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.names[row] for row in self.rows)

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "files": list(self.files)}

    @property
    def stamps(self) -> list[tuple[int, int]]:
        return [stamp_of(self.root / name) for name in self.files]


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


def file_at(root: Path, name: str) -> str | Path:
    """A file by its name below a folder; a URL stays one."""
    return name if "://" in name and url_of(name) is not None else root / name


def stamp_of(file: Path) -> tuple[int, int]:
    """The size of a file and when it was changed; zeros where it is gone, which reading it will say."""
    try:
        about = os.stat(file)
    except OSError:
        return 0, 0
    return about.st_size, about.st_mtime_ns
