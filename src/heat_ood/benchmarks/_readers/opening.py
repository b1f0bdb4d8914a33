"""A set of images by its description."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from ...images import ImageSet, open_images
from .cifar import open_cifar
from .digits import open_digits
from .encoded import open_encoded
from .imglist import open_imglist
from .lsun import open_lsun
from .spec import SetSpec
from .svhn import open_svhn

__all__ = ["open_set"]


def open_set(spec: SetSpec, root: str | PathLike[str], *, labels: bool = True, limit: int | None = None) -> ImageSet:
    """The images of a set, in a fixed order; the caller sets their ``preprocessing``.

    Raises ``MissingData`` where files are not there, and ``InputError`` where they are damaged.

    Args:
        spec: which images.
        root: the data root, which the paths of the description start from.
        labels: False leaves them out, as for OOD sets.
        limit: at most so many images, spread evenly over the set.

    Example:
        >>> images = open_set(SetSpec("digits", "digits", "test"), "data", limit=5)
        >>> len(images), images.classes
        (5, ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9'))
    """
    limits = [n for n in (spec.limit, limit) if n is not None]
    return OPEN[spec.reader](spec, Path(root), labels, min(limits, default=None))


def open_plain(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    path = spec.at(root)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        raise spec.missing(path)
    return open_images(path, labels=labels, limit=limit)


OPEN: dict[str, Callable[[SetSpec, Path, bool, int | None], ImageSet]] = {
    "cifar10-bin": open_cifar,
    "cifar100-bin": open_cifar,
    "svhn-mat": open_svhn,
    "folder": open_plain,
    "lsun": open_lsun,
    "imglist": open_imglist,
    "npz": open_plain,
    "encoded-npz": open_encoded,
    "digits": open_digits,
}
