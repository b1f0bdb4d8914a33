"""Features of distorted images: what a residual learns to tell from the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from ..errors import InputError
from ._batches import Inputs, check_order, similar, unpack
from ._distortions import OLD, check_kinds, distort

__all__ = ["Distorted", "has_images"]


class Distorted:
    """The images of a loader, distorted, each with the number of its kind as its label.

    A plain ``DataLoader`` is read in a random order of the seed's own, whatever its own order is, so that mixtures join
    images of different classes and ``samples`` is a random part; any other loader as it comes, in a fixed order. Batch
    by batch the same seed distorts alike, so an interrupted extraction goes on as if it had not been.

    Args:
        loader: the user's own, of ID images, preprocessed as the model wants them.
        model: what the images are for.
        kinds: names of distortions.
        samples: so many distorted images; None distorts each once. More than there are images goes round again, in
            another order and with other distortions; a loader that can be read only once ends when it ends.
        seed: of the order and of the distortions.

    Example:
        >>> loader = [torch.rand(4, 3, 8, 8), torch.rand(2, 3, 8, 8)]
        >>> [(x.shape[0], kind.tolist()) for x, kind in Distorted(loader, nn.Identity(), ("noise",), samples=5)]
        [(4, [0, 0, 0, 0]), (1, [0])]
    """

    def __init__(
        self,
        loader: Iterable[Any],
        model: nn.Module,
        kinds: Sequence[str],
        samples: int | None = None,
        seed: int = 0,
    ) -> None:
        kinds = check_kinds(kinds)
        if samples is not None and samples < 1:
            raise InputError(f"samples is at least 1, not {samples}; None distorts every image.")
        self.loader, self.model, self.kinds, self.samples, self.seed = loader, model, kinds, samples, seed
        self.drawn = reordered(loader, samples, seed)
        if self.drawn is None:
            check_order(loader)

    @property
    def origin(self) -> str:
        """What stored features were made with, to be told from others; kinds have the name that they first had."""
        part = "" if self.samples is None else f"; {self.samples} samples"
        first = {new: old for old, new in OLD.items()}
        return f"distorted: {', '.join(first.get(kind, kind) for kind in self.kinds)}; seed {self.seed}{part}"

    @property
    def count(self) -> int | None:
        """How many samples there will be, if it can be known."""
        return None if self.drawn is None else len(self.drawn.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        left = self.samples
        for number, batch in enumerate(self.rounds() if self.drawn is None else self.drawn):
            inputs = unpack(batch, self.model).inputs
            generator = torch.Generator().manual_seed(int(np.random.default_rng([self.seed, number]).integers(2**62)))
            yield self.distorted(inputs, left, generator)
            left = None if left is None else left - len(inputs)
            if left is not None and left <= 0:
                return

    def rounds(self) -> Iterator[Any]:
        """The batches of the loader, again and again where ``samples`` asks for it."""
        yield from self.loader
        while self.samples is not None and not isinstance(self.loader, Iterator):
            count = 0
            for batch in self.loader:
                count += 1
                yield batch
            if not count:
                return

    def distorted(self, inputs: Inputs, left: int | None, generator: torch.Generator) -> Any:
        """The inputs with their images distorted, as a loader would have given them, and the kinds."""
        places = [i for i, value in enumerate((*inputs.args, *inputs.kwargs.values())) if is_image(value)]
        values = [*inputs.args, *inputs.kwargs.values()]
        if not places:
            distort(inputs.tensors[0], self.kinds, generator)  # says what images are
        images, kind = distort(values[places[0]], self.kinds, generator)
        values[places[0]] = images
        values = [v[:left] if isinstance(v, Tensor) else v for v in values]
        if inputs.args:
            return values[0], kind[:left]
        return dict(zip(inputs.kwargs, values, strict=True)) | {"labels": kind[:left]}


def has_images(loader: Iterable[Any], model: nn.Module) -> bool:
    """Whether the first batch of a loader holds images, which can be distorted."""
    first = next(iter(loader), None)
    if first is None:
        return False
    inputs = unpack(first, model).inputs
    return any(map(is_image, (*inputs.args, *inputs.kwargs.values())))


def is_image(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 4 and value.is_floating_point()


def reordered(loader: Any, samples: int | None, seed: int) -> DataLoader[Any] | None:
    """A plain loader of a map-style data set in a random order; None for any other."""
    if type(loader) is not DataLoader or loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        return None
    dataset: Any = loader.dataset
    sampler: Any = loader.sampler
    if type(sampler) not in (SequentialSampler, RandomSampler) or len(sampler) != len(dataset):
        return None
    count = len(dataset) if samples is None else samples
    rounds = math.ceil(count / len(dataset)) if len(dataset) else 0
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(len(dataset)) for _ in range(max(rounds, 1))])[:count]
    return similar(loader, dataset, sampler=order.tolist())
