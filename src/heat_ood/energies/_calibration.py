"""Conformal calibration: from scores to p-values that hold for any detector."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import Argument, InputError
from ..features import Features

__all__ = ["Calibration", "bounded"]

MOST = 1_000_000
"""So many samples of a store of shards calibrate a detector: they tell false-alarm rates down to one in a million."""
TINY = 1e-15
"""Rates below it are said to need as many samples as this one: the inverse of some is no number any more."""


class Calibration(nn.Module):
    r"""Scores of held-out ID samples, sorted; the p-value of a score is its rank among them.

    .. math:: p(s) = \frac{1 + \#\{i : s_i + ε_i \ge s\}}{n + 1}

    If the calibration samples and a new ID sample are exchangeable, :math:`P(p \le \alpha) \le \alpha` for every
    :math:`\alpha`, whatever the detector. Samples that the backbone was trained on are not exchangeable with new ones.

    Computed in another batch, a score has other last digits. Scores within the resolution :math:`ε_i` count as equal,
    so that this holds among equal samples too: where two scores of a sample differ by less, the p-value is never below
    the one of exact scores.

    Args:
        scores: the calibration scores, (n,).
        groups: the predicted class of each; then a score is ranked within its class, and the guarantee holds
            for each predicted class. None ranks among all.
        count: how many classes there are.
        resolution: :math:`ε`, of all or of each score, (n,); a detector measures it when it is calibrated.

    Example:
        >>> calibration = Calibration(torch.tensor([1.0, 2.0, 2.0, 4.0]))
        >>> calibration.p_value(torch.tensor([0.0, 2.0, 9.0])).tolist()
        [1.0, 0.8, 0.2]
    """

    scores: Tensor
    offsets: Tensor
    limits: Tensor

    def __init__(
        self, scores: Tensor, groups: Tensor | None = None, count: int = 1, resolution: Tensor | float = 0.0
    ) -> None:
        super().__init__()
        if scores.ndim != 1 or not len(scores):
            raise InputError("Calibration needs at least one score. Pass held-out ID samples.")
        groups = torch.zeros(len(scores), dtype=torch.long, device=scores.device) if groups is None else groups
        order = torch.argsort(scores, stable=True)
        order = order[torch.argsort(groups[order], stable=True)]
        sizes = torch.bincount(groups, minlength=count)
        self.register_buffer("scores", scores[order].detach().clone())
        self.register_buffer("offsets", torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
        limits = (scores + resolution)[order].detach()
        rising = [part.cummax(0).values for part in torch.split(limits, sizes.tolist()) if len(part)]
        self.register_buffer("limits", torch.cat(rising))

    @classmethod
    def by_class(cls, scores: Tensor, classes: Tensor | None, count: int, resolution: Tensor) -> Calibration:
        """Ranked within the predicted class, of ``count``; each must be predicted at least once."""
        if classes is None:
            raise InputError(
                "The predicted class needs logits, and the model has none. Pass ", Argument("per_class", False), "."
            )
        empty = (torch.bincount(classes, minlength=count) == 0).nonzero().flatten().tolist()
        if empty:
            raise InputError(
                f"No calibration sample is predicted as class {', '.join(map(str, empty[:5]))}"
                f"{'…' if len(empty) > 5 else ''}. Calibrate on more samples, or pass ",
                Argument("per_class", False),
                ".",
            )
        return cls(scores, classes, count, resolution)

    @property
    def per_class(self) -> bool:
        """Whether scores are ranked within their predicted class."""
        return len(self.offsets) > 2

    @property
    def resolution(self) -> Tensor:
        """How far above each calibration score another one counts as equal, (n,)."""
        return self.limits - self.scores

    @property
    def smallest(self) -> int:
        """The number of samples in the smallest group: what bounds the finest p-value."""
        return int(self.offsets.diff().min())

    def p_value(self, scores: Tensor, groups: Tensor | None = None) -> Tensor:
        """The p-value of each score, float64; small = unlike the calibration samples."""
        scores = scores.to(self.scores)
        if not self.per_class:
            return rank(self.limits, scores)
        if groups is None:
            raise InputError("This detector is calibrated per predicted class: pass features with logits.")
        count = len(self.offsets) - 1
        if len(groups) and int(groups.max()) >= count:
            raise InputError(
                f"Class {int(groups.max())} is predicted, but the detector is calibrated for {count} classes. "
                "Pass features of the classifier that it was calibrated with."
            )
        p = torch.ones(len(scores), dtype=torch.float64, device=scores.device)
        for group in torch.unique(groups).tolist():
            start, end = self.offsets[group], self.offsets[group + 1]
            p[groups == group] = rank(self.limits[start:end], scores[groups == group])
        return p

    def forward(self, scores: Tensor, groups: Tensor | None = None) -> Tensor:
        """As :meth:`p_value`, by comparisons alone and nothing checked, so that ``torch.export`` can follow it.

        A score that is no number has the smallest p-value.
        """
        scores = scores.to(self.scores.dtype)
        low = torch.zeros_like(scores, dtype=torch.long) if groups is None else self.offsets[groups]
        end = torch.full_like(low, len(self.limits)) if groups is None else self.offsets[groups + 1]
        below = low
        for bit in reversed(range(len(self.limits).bit_length())):
            trial = below + 2**bit
            limits = self.limits[(trial - 1).clamp(max=len(self.limits) - 1)]
            below = torch.where((trial <= end) & ~(limits >= scores), trial, below)
        return (1 + end - below).double() / (1 + end - low).double()

    def check(self, fpr: float) -> None:
        """Refuse a false-alarm rate that no p-value of this calibration can reach."""
        if not 0 < fpr < 1:
            raise InputError(f"fpr is the share of ID samples that may be rejected, between 0 and 1, not {fpr}.")
        n = self.smallest
        if fpr < 1 / (n + 1):
            where = "in the smallest predicted class" if self.per_class else "in all"
            needed = math.ceil(1 / max(fpr, TINY)) - 1
            needed -= 1 / needed <= fpr  # 1 / fpr may be rounded up
            raise InputError(
                f"A false-alarm rate of {fpr:g} needs at least {needed:,} calibration samples; there are {n:,} "
                f"{where}. Calibrate on more held-out ID samples, or ask for ",
                Argument("fpr"),
                f" of at least 1/{n + 1}.",
            )

    def threshold(self, fpr: float) -> float | Tensor:
        """The score above which a p-value is at most ``fpr``; one a class, (C,), where they are ranked by class.

        Example:
            >>> Calibration(torch.tensor([1.0, 2.0, 2.0, 4.0])).threshold(0.4)
            2.0
        """
        self.check(fpr)
        found = [limit(part, fpr) for part in torch.split(self.limits, self.offsets.diff().tolist())]
        return torch.tensor(found, dtype=torch.float64) if self.per_class else found[0]

    def validate(self) -> None:
        """Refuse scores that are not in order, or groups that do not cover them: for what is read from a file."""
        scores, offsets = self.scores, self.offsets
        if scores.ndim != 1 or not scores.is_floating_point() or offsets.ndim != 1 or offsets.dtype != torch.long:
            raise InputError("the calibration has tensors of another kind")
        sizes = offsets.diff()
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(scores) or (sizes < 1).any():
            raise InputError("the calibration's groups do not cover its scores")
        if self.limits.shape != scores.shape or self.limits.dtype != scores.dtype or (self.limits < scores).any():
            raise InputError("the calibration's resolution does not fit its scores")
        parts = [*torch.split(scores, sizes.tolist()), *torch.split(self.limits, sizes.tolist())]
        if any((part.diff() < 0).any() for part in parts):
            raise InputError("the calibration scores are not in order")

    def extra_repr(self) -> str:
        return f"n={len(self.scores)}" + (f", classes={len(self.offsets) - 1}" if self.per_class else "")


def rank(ordered: Tensor, scores: Tensor) -> Tensor:
    below = torch.searchsorted(ordered.contiguous(), scores.contiguous(), right=False)
    n = len(ordered)
    return (1 + n - below).double() / (n + 1)


def limit(ordered: Tensor, fpr: float) -> float:
    """The score that has so many at or above it that one more would be too many; all above it are judged OOD."""
    n = len(ordered)
    allowed = int(fpr * (n + 1)) - 1
    while (allowed + 2) / (n + 1) <= fpr:  # the product may be rounded down
        allowed += 1
    while (allowed + 1) / (n + 1) > fpr:
        allowed -= 1
    return -math.inf if allowed >= n else float(ordered[n - 1 - allowed])


def bounded(features: Features) -> Features:
    """A sample of a large store of shards; other features as they are."""
    n = len(features)
    if not features.summed or n <= MOST:
        return features
    rng = np.random.default_rng(0)
    rows = np.empty(0, np.int64)
    while len(rows) < MOST:  # by the order of first draws; a permutation would need memory for all
        more = np.concatenate([rows, rng.integers(0, n, MOST)])
        rows = more[np.sort(np.unique(more, return_index=True)[1])]
    return features.subset(torch.from_numpy(np.sort(rows[:MOST])))
