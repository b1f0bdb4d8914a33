"""From a decoded image to the tensor that a model expects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import Argument, InputError
from ._depth import eight_bits

__all__ = ["IMAGENET", "Preprocessing"]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and spread of ImageNet's channels."""
LARGEST = 16_384
"""Pixels of a side that images are resized to, before they are cropped."""
INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


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
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not all(abs(v) <= 1 for v in values):  # not so of NaN
                refuse_scale(name, values)
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
        if self.size is not None and max(self.size) / self.crop_pct > LARGEST:
            raise InputError(
                f"Images cannot be resized to {max(self.size) / self.crop_pct:,.0f} pixels; {LARGEST:,} are the most. "
                "Pass a smaller ",
                *(Argument("size"), ", or a larger ", Argument("crop_pct"), "."),
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Preprocessing:
        """What timm writes in a model's ``pretrained_cfg``."""
        mode, interpolation = config.get("crop_mode") or "center", config.get("interpolation") or "bicubic"
        if mode not in ("center", "squash"):
            raise InputError(
                f"The model asks for crop_mode {mode!r}, which is not supported. Give ",
                *(Argument("size"), ", ", Argument("mean"), " and ", Argument("std"), "."),
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
        return self.normalised(self.pixels(image)[None])[0]

    def pixels(self, image: Image.Image) -> np.ndarray[Any, Any]:
        """A decoded image resized and cropped, (h, w, c), uint8, not normalised."""
        image = eight_bits(image).convert("RGB" if len(self.mean) == 3 else "L")
        if self.size is not None:
            image = self.resize(image, self.size)
        return np.array(image).reshape(image.height, image.width, -1)

    def normalised(self, pixels: np.ndarray[Any, Any]) -> Tensor:
        """Pixels, (n, h, w, c), uint8, as the model takes them, (n, c, h, w)."""
        values = torch.from_numpy(pixels.astype(np.float32) / 255).permute(0, 3, 1, 2).contiguous()
        return (values - self.column(self.mean)) / self.column(self.std)

    def resize(self, image: Image.Image, size: tuple[int, int]) -> Image.Image:
        height, width = size
        target = math.floor(height / self.crop_pct), math.floor(width / self.crop_pct)
        if not self.squash:
            h, w = image.height, image.width
            narrow = w * target[0] <= h * target[1]
            target = (int(target[1] * h / w), target[1]) if narrow else (target[0], int(target[0] * w / h))
        most = Image.MAX_IMAGE_PIXELS
        if most is not None and target[0] * target[1] > most:
            raise InputError(
                f"It has {image.height:,} × {image.width:,} pixels, and would have {target[0]:,} × {target[1]:,} with "
                "its shorter side resized. Crop it, or leave it out."
            )
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


def refuse_scale(name: str, values: Sequence[float]) -> NoReturn:
    """Say that pixels lie in [0, 1] and, where the numbers seem to be of pixels up to 255, what they are then."""
    large = max(values, key=abs)
    given = Argument(name, tuple(values))
    cause = "mean and std are of pixels in [0, 1]"
    if not 1 < large <= 255:
        raise InputError(given, f" is out of range: {cause}.")
    raise InputError(
        given,
        f" is out of range: {cause}. Did you mean {large:g}/255 = {large / 255:.2g}? Pass ",
        Argument(name, tuple(round(v / 255, 4) for v in values)),
        ".",
    )
