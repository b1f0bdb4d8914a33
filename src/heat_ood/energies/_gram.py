"""Gram matrices: channels that go together as they never did for samples of the predicted class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import Argument, InputError
from ..features import Extractor, Inputs, working_dtype
from ..registry import register
from ._inputs import InputEnergy
from ._settings import check_settings

__all__ = ["Gram", "gram_rows"]

EVERY = 10
"""One sample in so many is held out."""
FLOOR = 1e-6
"""A deviation is divided by no less than this share of the largest bound of its layer and power."""
LEAST = 1e-12
"""Nor by less than this, where a layer is all zeros."""


@register("gram", "Gram matrices out of the range of the class")
class Gram(InputEnergy):
    r"""How far the Gram matrices of a sample's maps leave the range of its predicted class (Sastry and Oore, 2020).

    With maps :math:`F_l`, (channels × positions), of layer :math:`l` and powers :math:`p`, taken entry by entry,

    .. math::
        g_l^p = \left(F_l^p {F_l^p}^\top \mathbf 1\right)^{1/p}, \qquad
        E(x) = \sum_l \frac{1}{\bar δ_l} \sum_{p,i} δ(g_{l,i}^p), \qquad
        δ(g) = \begin{cases} (m - g) / |m| & g < m \\ (g - M) / |M| & g > M \\ 0 & \text{else} \end{cases}

    where :math:`m` and :math:`M` are the least and the largest value among ID samples of the same predicted class, and
    :math:`\bar δ_l` is a layer's mean deviation on held-out ID samples. Every tenth sample is held out, so ``fit`` goes
    twice over the data, the second time with a tenth of it; a class that is never predicted has the bounds of all.

    The rows of the Gram matrix are summed before the root, as in the authors' code, so that no matrix is ever made:
    :math:`F^p ({F^p}^\top \mathbf 1)`. The paper's formula takes the root of each entry first, at many times the cost.

    Args:
        layers: ``"stages"``, or the names of modules, as for :class:`Extractor`. The paper reads every convolution.
        powers: :math:`p` runs from one to this; ten in the paper.

    Example:
        >>> torch.manual_seed(0) and None
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
        >>> gram = Gram(layers=("1",)).attach(model).fit(torch.rand(40, 3, 8, 8))
        >>> gram.score(5 * torch.rand(3, 3, 8, 8)).min() > gram.score(torch.rand(3, 3, 8, 8)).max()
        tensor(True)
    """

    no_prior = "it reads maps, and features are pooled"
    low: Tensor
    high: Tensor
    floor: Tensor
    scale: Tensor

    def __init__(self, layers: str | Sequence[str] = "stages", powers: int = 10) -> None:
        super().__init__()
        self.layers, self.powers = layers, powers
        self.widths_: dict[str, int] = {}
        for name in ("low", "high", "floor", "scale"):
            self.register_buffer(name, None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("maps",)

    def hook(self, model: nn.Module | Extractor) -> Extractor:
        if isinstance(model, Extractor):
            return Extractor(
                model.model,
                self.layers,
                model.head,
                device=model.device,
                autocast=model.autocast,
                name=model.name,
                weights=model.weights,
            )
        return Extractor(model, self.layers)

    # Fit

    def fit(self, data: Any) -> Self:
        check_settings(self)
        if isinstance(data, Iterator):
            raise InputError(
                "Gram goes twice over the data, and a generator can be used only once. Pass a DataLoader, a list of "
                "batches, or a tensor of inputs."
            )
        self.begin(data)
        self.low = self.high = self.floor = self.scale = None  # type: ignore[assignment]
        self.widths_ = {}
        for inputs in self.share(data, held=False):
            self.widen(*self.rows(inputs)[:2])
        if self.low is None:
            raise InputError("Gram cannot be fitted to no samples at all. Pass ID inputs.")
        self.settle()

        total, n = torch.zeros(len(self.widths_), dtype=torch.float64), 0
        for inputs in self.share(data, held=True):
            rows, logits, _ = self.rows(inputs)
            total += self.deviations(rows, logits).cpu().double().sum(0)
            n += len(rows)
        mean = total / max(n, 1)
        self.scale = torch.where(mean > 0, mean, 1.0).to(self.low)
        return self

    def check(self) -> None:
        if isinstance(self.powers, bool) or not isinstance(self.powers, int) or self.powers < 1:
            raise InputError(
                f"powers is how many powers there are, one or more, not {self.powers!r}. The paper has 10."
            )
        if not self.layers:
            raise InputError(
                "Gram reads at least one layer. Pass ", Argument("layers", "stages"), ", or the names of modules."
            )

    def share(self, data: Any, held: bool) -> Iterator[Inputs]:
        """The samples that are held out, every tenth, or the others."""
        seen = 0
        for inputs in self.batches(data):
            n = len(inputs)
            last = (seen + torch.arange(n)) % EVERY == EVERY - 1
            seen += n
            if (last == held).any():
                yield rows_of(inputs, last == held)

    def widen(self, rows: Tensor, logits: Tensor) -> None:
        """Let the bounds of the predicted classes hold these samples."""
        if not torch.isfinite(rows).all():
            raise InputError(
                "The maps of some samples are not finite. Check the inputs for NaN, and drop those samples."
            )
        if self.low is None:
            self.low = rows.new_full((logits.shape[1], rows.shape[1]), torch.inf)
            self.high = -self.low
        index = logits.argmax(1, keepdim=True).expand_as(rows)
        self.low.scatter_reduce_(0, index, rows, "amin")
        self.high.scatter_reduce_(0, index, rows, "amax")

    def settle(self) -> None:
        """Bounds for the classes that were never predicted, and the least denominators."""
        unseen = self.low[:, 0].isinf()
        self.low[unseen], self.high[unseen] = self.low.amin(0), self.high.amax(0)
        largest = torch.maximum(self.low.abs(), self.high.abs()).amax(0)
        groups = [part.reshape(self.powers, -1) for part in torch.split(largest, self.sizes)]
        floors = [part.amax(1, keepdim=True).expand_as(part).flatten() for part in groups]
        self.floor = (FLOOR * torch.cat(floors)).clamp(min=LEAST)

    # Energy

    @property
    def sizes(self) -> list[int]:
        """How many numbers there are of each layer."""
        return [self.powers * width for width in self.widths_.values()]

    def rows(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor | None]:
        """The sums of the rows, (n, Σ powers · channels), logits of the classes with bounds, and the model's own."""
        maps: dict[str, Tensor] = {}
        logits = self.extractors[0].forward(inputs, maps).logits
        widths = {name: part.shape[1] for name, part in maps.items()}
        self.widths_ = self.widths_ or widths
        if widths != self.widths_:
            raise InputError(
                f"The layers have {widths} channels, and Gram was fitted to {self.widths_}. Attach its model."
            )
        rows = torch.cat([gram_rows(part.to(working_dtype(part)), self.powers) for part in maps.values()], 1)
        return rows, rows.new_zeros(len(rows), 1) if logits is None else logits, logits

    def deviations(self, rows: Tensor, logits: Tensor) -> Tensor:
        """How far the sums are out of the bounds, relative to these, (n, layers)."""
        classes, floor = logits.argmax(1).to(self.low.device), self.floor.to(rows)
        low, high = self.low[classes].to(rows), self.high[classes].to(rows)
        below = (low - rows).relu() / low.abs().maximum(floor)
        above = (rows - high).relu() / high.abs().maximum(floor)
        return torch.stack([part.sum(1) for part in torch.split(below + above, self.sizes, 1)], 1)

    @torch.no_grad()
    def judge(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        rows, classes, logits = self.rows(inputs)
        return (self.deviations(rows, classes) / self.scale.to(rows)).sum(1), logits

    # Saving

    def facts(self) -> dict[str, Any]:
        return {"widths": self.widths_}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.widths_ = dict(facts["widths"])

    def validate(self) -> None:
        super().validate()
        if not self.widths_ or not all(isinstance(width, int) and width > 0 for width in self.widths_.values()):
            raise InputError(f"its layers are {self.widths_}")
        total, dtype = sum(self.sizes), self.low.dtype
        shapes = [tuple(t.shape) for t in (self.low, self.high, self.floor, self.scale)]
        if shapes[1:] != [shapes[0], (total,), (len(self.widths_),)] or self.low.ndim != 2 or shapes[0][1] != total:
            raise InputError(f"bounds of {total} numbers have the shapes {shapes}")
        tensors = (self.low, self.high, self.floor, self.scale)
        if not all(t.dtype == dtype and t.is_floating_point() and t.isfinite().all() for t in tensors):
            raise InputError("its bounds are not finite numbers of one type")
        if not len(self.low) or (self.low > self.high).any() or not ((self.floor > 0).all() and (self.scale > 0).all()):
            raise InputError("its bounds are out of order")


def gram_rows(maps: Tensor, powers: int) -> Tensor:
    r"""Roots of the row sums, :math:`(F^p {F^p}^\top \mathbf 1)^{1/p}`, :math:`p` from one on, (n, powers · channels).

    Each channel is divided by its largest entry before the power, and their sum by that of all channels, and
    multiplied by it after the root, so that no power overflows.

    Args:
        maps: :math:`F`, (n, channels, positions).
        powers: how many.

    Example:
        >>> gram_rows(torch.tensor([[[1.0, 2.0], [0.0, 4.0]]]), powers=1)
        tensor([[13., 24.]])
    """
    size = maps.abs().amax(2, keepdim=True)
    largest = size.amax(1, keepdim=True)
    own, all_ = (maps / torch.where(by > 0, by, 1) for by in (size, largest))
    found, power, whole = [], torch.ones_like(own), torch.ones_like(all_)
    for p in range(1, powers + 1):
        power, whole = power * own, whole * all_
        sums = power @ whole.sum(1)[:, :, None]
        found.append((size * largest * sums.sign() * sums.abs() ** (1 / p)).squeeze(2))
    return torch.cat(found, 1)


def rows_of(inputs: Inputs, chosen: Tensor) -> Inputs:
    """Some samples of a batch."""
    n = len(inputs)

    def take(value: Any) -> Any:
        return value[chosen.to(value.device)] if isinstance(value, Tensor) and value.ndim and len(value) == n else value

    return Inputs(tuple(map(take, inputs.args)), {k: take(v) for k, v in inputs.kwargs.items()})
