"""How far the residual may go: judged by distortions that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..detector import HEAT
from ..errors import InputError
from ..features import Features
from ..metrics import summary
from ..recipe import AGAINST_CONTRAST
from ..residual import Hybrid, Residual
from .compare import Comparison, Verdict

__all__ = ["BOUNDS", "compare_bounds"]

BOUNDS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 2.0)
HALVES = 2


def compare_bounds(
    train: Features,
    contrast: Features,
    *,
    bounds: Sequence[float] = BOUNDS,
    residual: Residual = AGAINST_CONTRAST,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    r"""Train with every other kind of distortion, judge by the rest, and the other way round.

    A bounded residual is :math:`b \tanh u`, and :math:`b` only scales its loss: one training serves every bound.

    Args:
        train: ID features, as for :meth:`HEAT.fit`.
        contrast: features of at least two kinds of distortion, as :meth:`Extractor.contrast` makes them.
        bounds: in units of the composition's spread on held-out ID samples; zero is the plain composition.
        residual: its other settings; it must be joint and bounded.
        seed: of the split and the training.
        progress: show bars.
    """
    labels = contrast.labels
    kinds = [] if labels is None else sorted(set(labels.tolist()))
    if labels is None or len(kinds) < HALVES:
        raise InputError(
            f"The contrast features have {len(kinds)} kinds of distortion; judging by unseen ones takes at least "
            f"{HALVES}. Make them with Extractor.contrast(loader, kinds=…)."
        )
    if not (residual.joint and residual.bounded and residual.bound):
        raise InputError(
            "Bounds are compared for a joint, bounded residual that is on: Residual(joint=True, lam=1.0, …)."
        )
    found: dict[float, list[tuple[float, float]]] = {b: [] for b in bounds}
    for half in range(HALVES):
        seen = kinds[half::HALVES]
        known = torch.isin(labels, labels.new_tensor(seen)).nonzero().flatten()
        detector = HEAT(residual=residual, seed=seed).fit(train, contrast.subset(known), progress=progress)
        prior, correction = terms(detector, detector.split(train)[1])
        for kind in (k for k in kinds if k not in seen):
            theirs = terms(detector, contrast.subset((labels == kind).nonzero().flatten()))
            for b in bounds:
                m = summary(prior + b * correction, theirs[0] + b * theirs[1])
                found[b].append((m.fpr_at_95_id, m.auroc))
    rows = {f"bound {b:g}": {"unseen distortions": Verdict(*np.mean(v, 0).tolist())} for b, v in found.items()}
    return Comparison(detector.used, rows)


def terms(detector: HEAT, features: Features) -> tuple[Tensor, Tensor]:
    """The composition in its own spreads, and the residual as a share of its bound."""
    energies, inner = detector.energies(features), detector.inner
    assert isinstance(inner, Hybrid)
    return energies["prior/joint"] / inner.temperature.cpu(), energies["residual/joint"] / inner.residual.bound
