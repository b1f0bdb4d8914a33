"""Distortions of images: what looks like the data piece by piece, and is none of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, interpolate, pad

from ..deprecation import renamed
from ..errors import InputError

__all__ = ["CONTRAST", "KINDS", "OLD", "check_kinds", "distort"]

Distortion = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def distort(images: Tensor, kinds: Sequence[str], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A distorted copy of each image and the number of its kind; kinds take turns, from a random one on.

    Args:
        images: (n, channels, height, width), floating point, preprocessed as the network wants them.
        kinds: names among :data:`KINDS`.
        generator: every random draw; it lives on the CPU, so the same seed distorts alike on every device.

    Example:
        >>> images = torch.rand(4, 3, 8, 8)
        >>> distorted, kind = distort(images, ("jigsaw-2", "noise"), torch.Generator().manual_seed(0))
        >>> distorted.shape, kind.unique().tolist()
        (torch.Size([4, 3, 8, 8]), [0, 1])
    """
    kinds = check_kinds(kinds)
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            f"Only images can be distorted, floating-point (n, channels, height, width), not {images.dtype} "
            f"{tuple(images.shape)}. For other inputs pass contrast features of your own, or none."
        )
    first = int(torch.randint(len(kinds), (), generator=generator))
    kind = (torch.arange(len(images)) + first) % len(kinds)
    distorted = torch.empty_like(images)
    wide = images.to(torch.promote_types(images.dtype, torch.float32))
    for number, name in enumerate(kinds):
        rows = (kind == number).nonzero().flatten().to(images.device)
        if len(rows):
            distorted[rows] = KINDS[name](wide, rows, generator).to(images.dtype)
    return distorted, kind


def check_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """The kinds by their names of today; none, an unknown one and one that is named twice are refused."""
    given = () if isinstance(kinds, str) or not isinstance(kinds, Iterable) else tuple(kinds)
    for name in set(given) & set(OLD):
        renamed(f"The distortion {name!r}", repr(OLD[name]))
    names = tuple(OLD.get(name, name) for name in given)
    if not names or len(set(names)) < len(names) or not set(names) <= set(KINDS):
        raise InputError(f"The kinds cannot be {kinds!r}. Pass a tuple of {', '.join(KINDS)}, some of them, each once.")
    return names


def uniform(n: int, low: float, high: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """A number an image, (n, 1, 1, 1)."""
    return (low + (high - low) * torch.rand(n, generator=generator)).to(like).view(-1, 1, 1, 1)


def partners(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Another image of the batch for each of these; the image itself, upside down, where it is alone."""
    n = len(images)
    if n == 1:
        return images[rows].flip(2, 3)
    steps = torch.randint(1, n, (len(rows),), generator=generator)
    return images[(rows + steps.to(rows.device)) % n]


def jigsaw(parts: int) -> Distortion:
    """Cut into parts × parts pieces that change places; a remainder of the division stays where it is."""

    def cut(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        x = images[rows]
        n, c, height, width = x.shape
        across, down = min(parts, width), min(parts, height)
        h, w = height // down, width // across
        pieces = x[:, :, : h * down, : w * across].reshape(n, c, down, h, across, w)
        pieces = pieces.permute(0, 2, 4, 1, 3, 5).reshape(n, down * across, c, h, w)
        order = torch.rand(n, down * across, generator=generator).argsort(1)
        same = (order == torch.arange(down * across)).all(1)
        order[same] = order[same].roll(1, 1)
        moved = pieces[torch.arange(n)[:, None].to(x.device), order.to(x.device)]
        moved = moved.reshape(n, down, across, c, h, w).permute(0, 3, 1, 4, 2, 5)
        x[:, :, : h * down, : w * across] = moved.reshape(n, c, h * down, w * across)
        return x

    return cut


def mixup(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """The mean of two images, 30 to 70 % of each."""
    share = uniform(len(rows), 0.3, 0.7, generator, images)
    return torch.lerp(images[rows], partners(images, rows, generator), share)


def cutmix(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """A rectangle of another image, of half to four fifths of each side, in a random place."""
    x, other = images[rows], partners(images, rows, generator)
    n, _, height, width = x.shape
    inside = torch.ones(n, 1, 1, 1, dtype=torch.bool, device=x.device)
    for size, shape in ((height, (1, 1, -1, 1)), (width, (1, 1, 1, -1))):
        length = uniform(n, 0.5, 0.8, generator, x) * size
        start = uniform(n, 0, 1, generator, x) * (size - length)
        place = torch.arange(size, device=x.device, dtype=x.dtype).view(shape) + 0.5
        inside = inside & (place >= start) & (place < start + length)
    return torch.where(inside, other, x)


def noise(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """White noise, of a tenth to the whole of a channel's spread."""
    x = images[rows]
    spread = images.std((0, 2, 3), correction=0, keepdim=True)
    level = uniform(len(rows), math.log(0.1), 0.0, generator, x).exp()
    return x + level * spread * torch.randn(x.shape, generator=generator).to(x)


def blur(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """A Gaussian blur whose width is 3 to 10 % of each side, and at least half a pixel."""
    x = images[rows]
    n, c, height, width = x.shape
    share = uniform(n, 0.03, 0.1, generator, x).view(-1, 1)
    for axis, size in ((2, height), (3, width)):
        radius = min(math.ceil(0.25 * size), size - 1)
        place = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
        kernel = torch.exp(-0.5 * (place / (share * size).clamp(min=0.5)).square())
        kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(c, 0)
        shape, margin = (
            ((-1, 1, 2 * radius + 1, 1), (0, 0, radius, radius))
            if axis == 2
            else ((-1, 1, 1, 2 * radius + 1), (radius, radius, 0, 0))
        )
        flat = pad(x.reshape(1, n * c, *x.shape[2:]), margin, mode="reflect")
        x = conv2d(flat, kernel.view(shape), groups=n * c).reshape(n, c, height, width)
    return x


def rotate(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """A quarter, half or three quarter turn; what is not square is turned upside down."""
    x = images[rows]
    if x.shape[2] != x.shape[3]:
        return x.flip(2, 3)
    turns = torch.randint(1, 4, (len(x),), generator=generator).to(x.device)
    return torch.stack([x, x.rot90(1, (2, 3)), x.flip(2, 3), x.rot90(3, (2, 3))])[turns, torch.arange(len(x))]


def invert(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """The negative, about the mean of each channel."""
    return 2 * images.mean((0, 2, 3), keepdim=True) - images[rows]


def colour(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Channels mixed at random, each then shifted; a single channel keeps or changes its sign, and is shifted."""
    x = images[rows]
    n, c = x.shape[:2]
    dead = 1e-5 * images.abs().amax() + 1e-12  # a channel that never varies must not blow up the others
    mean, spread = images.mean((0, 2, 3)), images.std((0, 2, 3), correction=0).clamp(min=dead)
    mixing = torch.randn(n, c, c, generator=generator).to(x)
    mixing = mixing / mixing.norm(dim=2, keepdim=True)
    shift = torch.randn(n, c, 1, generator=generator).to(x) * 0.5
    unit = (x.flatten(2) - mean[:, None]) / spread[:, None]
    mixed: Tensor = (mixing @ unit + shift) * spread[:, None] + mean[:, None]
    return mixed.reshape(x.shape)


def tone(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Contrast of a twentieth to a third of what it was, or two to four times it, about the image's own mean."""
    x = images[rows]
    low = uniform(len(x), math.log(0.05), math.log(0.35), generator, x).exp()
    high = uniform(len(x), math.log(2), math.log(4), generator, x).exp()
    factor = torch.where(uniform(len(x), 0, 1, generator, x) < 0.5, low, high)
    mean = x.mean((2, 3), keepdim=True)
    return mean + factor * (x - mean)


def zoom(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """A piece of an eighth to three eighths of each side, enlarged to the whole."""
    x = images[rows]
    n = len(x)
    scale = uniform(n, 0.125, 0.375, generator, x).view(-1)
    theta = x.new_zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    for axis in (0, 1):
        theta[:, axis, 2] = (1 - scale) * uniform(n, -1, 1, generator, x).view(-1)
    grid = affine_grid(theta, list(x.shape), align_corners=False)
    return grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False)


def warp(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """A smooth random displacement, by about a tenth of the image's width."""
    x = images[rows]
    n = len(x)
    coarse = torch.randn(n, 2, 4, 4, generator=generator).to(x)
    field = interpolate(coarse, size=x.shape[2:], mode="bicubic", align_corners=False)
    strength = uniform(n, 0.15, 0.4, generator, x)
    straight = torch.eye(2, 3, dtype=x.dtype, device=x.device).expand(n, 2, 3)
    grid = affine_grid(straight, list(x.shape), align_corners=False) + (strength * field).permute(0, 2, 3, 1)
    return grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def phase(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """The same amplitudes at all frequencies with phases of white noise, equal in all channels: a texture."""
    x = images[rows]
    white = torch.randn(len(x), 1, *x.shape[2:], generator=generator).to(x)
    spectrum, turn = torch.fft.rfft2(x), torch.fft.rfft2(white)
    turn = turn / turn.abs().clamp(min=1e-12)
    turn[..., 0, 0] = 1
    texture: Tensor = torch.fft.irfft2(spectrum * turn, s=x.shape[2:])
    return texture


KINDS: dict[str, Distortion] = {
    "jigsaw-2": jigsaw(2),
    "jigsaw-4": jigsaw(4),
    "mixup": mixup,
    "cutmix": cutmix,
    "noise": noise,
    "blur": blur,
    "rotate": rotate,
    "invert": invert,
    "colour": colour,
    "tone": tone,
    "zoom": zoom,
    "warp": warp,
    "phase": phase,
}
"""Every kind of distortion: a function of all images of a batch and the rows to distort."""

OLD = {"contrast": "tone"}
"""Kinds that had another name before version 0.2."""
CONTRAST = tuple(KINDS)
"""The kinds that contrast is made of by default: all. docs/beyond.md says why."""
