"""Scikit-learn's digits with what is none of them, and a small network to train on the spot: no download.

The 1,797 digits (8 × 8, values 0 to 16) are split at random by the seed: 60 % train the network and fit the detector,
20 % calibrate it, 20 % test it. The network has seen neither the calibration nor the test samples, but the same
writers' hands occur in all parts. What a reader of digits comes across besides is OOD:

- letters: the capitals that nobody takes for a digit, in the fonts that come with matplotlib, made as the digits were:
  black and white, as high as the field, at most 20 of its 32 columns wide, ink counted in blocks of 4 × 4;
- digit pairs: two of the test digits in one field, side by side and half as wide, as where nobody cut between them;
- photo patches: of scikit-learn's two sample photographs, stretched to the digits' range so that brightness does not
  give them away.

Letters and pairs are near-OOD, with the digits' range and margins; patches are far. None of the three is made by a
distortion that HEAT learns from. Letters differ from handwritten digits by being letters and by being print.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

__all__ = ["KNOWN", "Data", "Network", "load_data", "network", "train"]

KNOWN = 10
"""The digits below this are ID: all."""
_TRAIN, _CALIBRATION = 0.6, 0.2
_PATCH = 32
_LETTERS = "ACEFHJKLMNPRTUVWXY"  # without B, D, G, I, O, Q, S and Z, which read as 8, 0, 6, 1, 0, 0, 5 and 2
_FONTS = tuple(
    f"{family}{style}.ttf"
    for family, slanted in (("DejaVuSans", "Oblique"), ("DejaVuSansMono", "Oblique"), ("DejaVuSerif", "Italic"))
    for style in ("", "-Bold", f"-{slanted}", f"-Bold{slanted}")
) + tuple(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta"))


@dataclass(frozen=True)
class Data:
    """Images (n, 1, 8, 8) with values in [0, 1]; labels where a class is known."""

    train: tuple[Tensor, Tensor]
    calibration: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    ood: dict[str, Tensor]


class Network(nn.Module):
    """Three convolutions, 64 maps of 4 × 4, their mean and a linear head.

    Example:
        >>> Network(10)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stage1, self.stage2, self.stage3 = _block(1, 32), _block(32, 64), _block(64, 64)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.stage3(self.pool(self.stage2(self.stage1(x))))
        return self.head(maps.mean((2, 3)))  # type: ignore[no-any-return]


def _block(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def load_data(seed: int = 0) -> Data:
    """The digits, split by the seed, and what is none."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(digits.images))
    ends = [round(_TRAIN * len(order)), round((_TRAIN + _CALIBRATION) * len(order))]

    def part(rows: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        return _as_images(digits.images[rows]), torch.from_numpy(digits.target[rows]).long()

    rows = np.split(order, ends)
    ood = {
        "letters": _as_images(_letters()),
        "digit pairs": _as_images(_pairs(digits.images[rows[2]], rng)),
        "photo patches": _as_images(_patches()),
    }
    return Data(part(rows[0]), part(rows[1]), part(rows[2]), ood)


def _as_images(values: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(values / 16).float().unsqueeze(1)


def _letters() -> np.ndarray[Any, Any]:
    """Each letter in each font, as the digits' makers (NIST's form reader) would have normalised and counted it."""
    import matplotlib

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    fonts = [ImageFont.truetype(str(folder / name), 200) for name in _FONTS]
    return np.stack([_counted(font, letter) for font in fonts for letter in _LETTERS])


def _counted(font: ImageFont.FreeTypeFont, letter: str) -> np.ndarray[Any, Any]:
    left, top, right, bottom = font.getbbox(letter)
    drawn = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(drawn).text((-left, -top), letter, fill=255, font=font)
    drawn = drawn.crop(drawn.getbbox())
    width = min(20, max(1, round(32 * drawn.width / drawn.height)))
    field = np.zeros((32, 32))
    start = (32 - width) // 2
    field[:, start : start + width] = np.asarray(drawn.resize((width, 32), Image.Resampling.BOX)) >= 128
    counts: np.ndarray[Any, Any] = field.reshape(8, 4, 8, 4).sum((1, 3))
    return counts


def _pairs(images: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Each image once on the left and once on the right; of the 6 columns between the margins, 3 are made."""
    order = rng.permutation(len(images))
    both = np.concatenate([images[order, :, 1:7], images[np.roll(order, 1), :, 1:7]], 2)
    halved = both.reshape(-1, 8, 6, 2).mean(3).round()
    return np.pad(halved, ((0, 0), (0, 0), (1, 1)))


def _patches() -> np.ndarray[Any, Any]:
    """The photographs in grey, cut on a grid, averaged down to 8 × 8, each patch stretched to whole numbers 0 to 16."""
    from sklearn.datasets import load_sample_images

    found = []
    for photo in load_sample_images().images:
        grey = photo.mean(2)
        rows, columns = grey.shape[0] // _PATCH, grey.shape[1] // _PATCH
        cells = (
            grey[: rows * _PATCH, : columns * _PATCH]
            .reshape(rows * 8, _PATCH // 8, columns * 8, _PATCH // 8)
            .mean((1, 3))
        )
        found.append(cells.reshape(rows, 8, columns, 8).swapaxes(1, 2).reshape(-1, 8, 8))
    joined = np.concatenate(found)
    low, high = joined.min((1, 2), keepdims=True), joined.max((1, 2), keepdims=True)
    stretched: np.ndarray[Any, Any] = np.round(16 * (joined - low) / np.maximum(high - low, 1e-9))
    return stretched


def train(images: Tensor, labels: Tensor, seed: int = 0, epochs: int = 20, batch: int = 64) -> Network:
    """Plain cross-entropy; the same seed gives the same network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Network(int(labels.max()) + 1)
        steps = epochs * -(-len(images) // batch)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
        for _ in range(epochs):
            for chosen in torch.split(torch.randperm(len(images)), batch):
                loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
    return model.eval()


def network() -> Network:
    """The network, trained on the spot (seconds)."""
    return train(*load_data().train)
