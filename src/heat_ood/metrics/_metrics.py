"""How well scores tell out-of-distribution samples from in-distribution ones; a score is higher = more OOD."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "METRICS",
    "Metrics",
    "Scores",
    "as_array",
    "as_scores",
    "at_least_95",
    "aupr_in",
    "aupr_out",
    "auroc",
    "bootstrap",
    "fpr_at_95_id",
    "fpr_at_95_ood",
    "percentile_intervals",
    "replicates",
    "summary",
]

Scores: TypeAlias = "npt.ArrayLike | Tensor"
"""One number a sample, higher = more OOD."""
_Integers: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True)
class Metrics:
    r"""Five numbers in [0, 1] that say how well scores :math:`s` tell an OOD set from an ID set.

    Equal scores are one threshold, never broken by order. "At least 95 %" is exact: it is counted in whole samples.

    Args:
        auroc: :math:`P(s_{ood} > s_{id}) + \tfrac12 P(s_{ood} = s_{id})`: by ranks, ties averaged.
        aupr_in: average precision with ID as the positives, the lowest score first.
        aupr_out: average precision with OOD as the positives, the highest score first.
        fpr_at_95_id: the share of OOD accepted, :math:`s \le t`, at the smallest :math:`t` that accepts at least
            95 % of ID, :math:`s \le t`. The HEAT paper's FPR95.
        fpr_at_95_ood: the share of ID rejected, :math:`s \ge t`, at the largest :math:`t` that catches at least
            95 % of OOD, :math:`s \ge t`. OpenOOD v1.5's FPR95.
    """

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr_at_95_id: float
    fpr_at_95_ood: float


METRICS = tuple(field.name for field in fields(Metrics))
"""The names of the metrics."""


def summary(id_scores: Scores, ood_scores: Scores) -> Metrics:
    """All five metrics, from one joint sort.

    Example:
        >>> summary([0.0, 1.0, 2.0], [2.0, 3.0])
        Metrics(auroc=0.91..., aupr_in=0.91..., aupr_out=0.83..., fpr_at_95_id=0.5, fpr_at_95_ood=0.33...)
    """
    id_ranks, ood_ranks, size = _joint_ranks(id_scores, ood_scores)
    return _of_counts(np.bincount(id_ranks, minlength=size), np.bincount(ood_ranks, minlength=size))


def auroc(id_scores: Scores, ood_scores: Scores) -> float:
    """Area under the ROC curve: the chance that an OOD sample scores above an ID one; see :class:`Metrics`."""
    return summary(id_scores, ood_scores).auroc


def aupr_in(id_scores: Scores, ood_scores: Scores) -> float:
    """Average precision with ID as the positives; see :class:`Metrics`."""
    return summary(id_scores, ood_scores).aupr_in


def aupr_out(id_scores: Scores, ood_scores: Scores) -> float:
    """Average precision with OOD as the positives; see :class:`Metrics`."""
    return summary(id_scores, ood_scores).aupr_out


def fpr_at_95_id(id_scores: Scores, ood_scores: Scores) -> float:
    """The share of OOD accepted when at least 95 % of ID is accepted (the paper's FPR95); see :class:`Metrics`."""
    return summary(id_scores, ood_scores).fpr_at_95_id


def fpr_at_95_ood(id_scores: Scores, ood_scores: Scores) -> float:
    """The share of ID rejected when at least 95 % of OOD is caught (OpenOOD v1.5's FPR95); see :class:`Metrics`."""
    return summary(id_scores, ood_scores).fpr_at_95_ood


def bootstrap(
    id_scores: Scores, ood_scores: Scores, n: int = 200, level: float = 0.95, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Percentile interval of each metric, over ``n`` resamples of ID and of OOD, drawn independently.

    Example:
        >>> bootstrap([0.0, 1.0], [2.0, 3.0])["auroc"]
        (1.0, 1.0)
    """
    return percentile_intervals(replicates(id_scores, ood_scores, n, seed), level)


def replicates(
    id_scores: Scores, ood_scores: Scores, n: int = 200, seed: int = 0, stream: int = 0
) -> npt.NDArray[np.float64]:
    """The metrics of ``n`` resamples, (n, 5), columns as in ``METRICS``.

    The resamples of ID depend on the seed alone, so that several OOD sets share them; those of OOD on ``stream`` too.
    """
    if n < 2:
        raise InputError(f"The bootstrap needs at least 2 resamples, not {n}. Pass 200, or switch the intervals off.")
    if seed < 0 or stream < 0:
        raise InputError(f"A seed must not be negative: seed={seed}, stream={stream}. Pass 0 or more.")
    id_ranks, ood_ranks, size = _joint_ranks(id_scores, ood_scores)
    id_generator, ood_generator = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1, stream])

    def resample(ranks: _Integers, generator: np.random.Generator) -> _Integers:
        return np.bincount(ranks[generator.integers(len(ranks), size=len(ranks))], minlength=size)

    draws = ((resample(id_ranks, id_generator), resample(ood_ranks, ood_generator)) for _ in range(n))
    return np.array([astuple(_of_counts(a, b)) for a, b in draws])


def percentile_intervals(replicates: npt.NDArray[np.float64], level: float = 0.95) -> dict[str, tuple[float, float]]:
    """The central ``level`` of each column of :func:`replicates`, by the metric's name."""
    if not 0 < level < 1:
        raise InputError(f"The level of an interval lies between 0 and 1, not at {level}. Pass 0.95 for 95 %.")
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(METRICS, low, high, strict=True)}


def _of_counts(a: _Integers, b: _Integers) -> Metrics:
    """The metrics of ``a[j]`` ID and ``b[j]`` OOD samples at the j-th smallest distinct score; zeros are allowed."""
    A, B = a.cumsum(), b.cumsum()  # samples at or below each score
    n, m = int(A[-1]), int(B[-1])
    below_a, below_b = A - a, B - b

    pairs = int(b @ (below_a + A))  # twice the pairs in the right order, ties half
    accepted, caught = A + B, (n - below_a) + (m - below_b)

    accept = np.searchsorted(A, at_least_95(n))
    catch = np.searchsorted(below_b, m - at_least_95(m), side="right") - 1
    return Metrics(
        auroc=pairs / (2 * n * m),
        aupr_in=float(a @ (A / np.maximum(accepted, 1))) / n,
        aupr_out=float(b @ ((m - below_b) / np.maximum(caught, 1))) / m,
        fpr_at_95_id=int(B[accept]) / m,
        fpr_at_95_ood=(n - int(below_a[catch])) / n,
    )


def at_least_95(n: int) -> int:
    """The smallest whole number that is at least 95 % of ``n``."""
    return -(-19 * n // 20)


def _joint_ranks(id_scores: Scores, ood_scores: Scores) -> tuple[_Integers, _Integers, int]:
    """For each sample the rank of its score among the distinct scores of both sets, and how many those are."""
    s, t = as_scores(id_scores, "id_scores"), as_scores(ood_scores, "ood_scores")
    distinct, ranks = np.unique(np.concatenate([s, t]), return_inverse=True)
    return ranks[: len(s)], ranks[len(s) :], len(distinct)


def as_scores(scores: Scores, name: str = "scores") -> npt.NDArray[np.float64]:
    """A vector of finite float64 numbers, or an error that says what is wrong with ``name``."""
    array = as_array(scores)
    if array.ndim != 1:
        raise InputError(
            f"{name} must be a vector, one score a sample, not of shape {array.shape}. "
            "Pass the detector's score; flatten a single column with .ravel()."
        )
    if not len(array):
        raise InputError(
            f"{name} is empty. Pass at least one score; check that the data set was found and not filtered away."
        )
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{name} must hold real numbers, not {array.dtype}. Convert it, for example with .astype(float)."
        )

    finite = np.isfinite(array)
    if not finite.all():
        raise InputError(
            f"{name} has {len(array) - int(finite.sum()):,} non-finite among {len(array):,} scores, "
            f"the first at index {int(finite.argmin())}. "
            "Check the features of these samples for NaN or overflow, or leave the samples out of both sets."
        )
    return array.astype(np.float64)


def as_array(scores: Scores) -> npt.NDArray[Any]:
    """As numpy, from any device and floating type, without its gradient."""
    if hasattr(scores, "detach"):
        tensor = scores.detach().cpu()
        scores = tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()
    return np.asarray(scores)
