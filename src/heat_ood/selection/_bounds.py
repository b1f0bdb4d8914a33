"""How far the residual may go, and how sure it must be: judged by distortions and classes that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..energies import CHUNK, dealt, logits_of
from ..errors import Argument, InputError
from ..features import Features
from ..heat import AGAINST_CONTRAST, HEAT
from ..metrics import summary
from ..residual import Hybrid, Residual
from ._compare import Comparison, Verdict

__all__ = ["BOUNDS", "ODDS", "compare_bounds"]

BOUNDS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)
ODDS = (1.0, 3.0, 7.0, 20.0, 55.0)
HALVES = 2
ALMOST = 1 - 1e-6
"""Beyond this share of its bound a residual in float32 does not tell how sure it is."""

Terms = tuple[Tensor, Tensor]


def compare_bounds(
    train: Features,
    contrast: Features,
    *,
    bounds: Sequence[float] = BOUNDS,
    odds: Sequence[float] = ODDS,
    residual: Residual = AGAINST_CONTRAST,
    folds: int = 2,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    r"""Judge bounds and odds of the residual by what it has not seen: kinds of distortion, and whole classes.

    A bounded residual is :math:`b \tanh(u - \tfrac12 \log o)`; the bound :math:`b` only scales its loss, and the odds
    :math:`o` are counted after training: one training serves them all. Two tasks judge. *Unseen distortions*: it
    learns from every other kind and is judged by the rest, and the other way round. *Unseen classes*: it learns
    without a group of classes, and without the distorted images that the classifier takes for one of them, and the
    images of these classes judge.

    Args:
        train: ID features, as for :meth:`HEAT.fit`.
        contrast: features of at least two kinds of distortion, as :meth:`Extractor.contrast` makes them.
        bounds: in units of the composition's spread on held-out ID samples; zero is the plain composition.
        odds: as in :class:`Residual`.
        residual: the settings of its training; it must be joint and bounded.
        folds: groups of classes, each left out once; 0 leaves out the task.
        seed: of the split, the groups and the training.
        progress: show bars.
    """
    if not (residual.joint and residual.bounded and residual.bound):
        raise InputError(
            "Bounds are compared for a joint, bounded residual that is on: Residual(joint=True, lam=1.0, …)."
        )
    if folds:
        dealt(train, folds, seed)  # says before any training what cannot be left out
    residual = replace(residual, odds=1.0)
    used, pairs = unseen_kinds(train, contrast, residual, seed, progress)
    tasks = {"unseen distortions": pairs}
    if folds:
        tasks["unseen classes"] = unseen_classes(train, contrast, residual, folds, seed, progress)
    rows: dict[str, dict[str, Verdict]] = {}
    for b in bounds:
        for o in odds if b else odds[:1]:
            title = f"bound {b:g}, odds {o:g}" if b else "bound 0"
            rows[title] = {task: judged(each, b, o) for task, each in tasks.items()}
    return Comparison(used, rows)


def unseen_kinds(
    train: Features, contrast: Features, residual: Residual, seed: int, progress: bool
) -> tuple[tuple[str, ...], list[tuple[Terms, Terms]]]:
    """The priors; held-out samples and those of each kind, by a residual that has not seen the kind."""
    labels = contrast.labels
    kinds = [] if labels is None else sorted(set(labels.tolist()))
    if labels is None or len(kinds) < HALVES:
        raise InputError(
            f"The contrast features have {len(kinds)} kinds of distortion; judging by unseen ones takes at least "
            f"{HALVES}. Make them with Extractor.contrast and more ",
            Argument("kinds"),
            ".",
        )
    pairs: list[tuple[Terms, Terms]] = []
    for half in range(HALVES):
        seen = kinds[half::HALVES]
        known = torch.isin(labels, labels.new_tensor(seen)).nonzero().flatten()
        detector = HEAT(residual=residual, seed=seed).fit(train, contrast.subset(known), progress=progress)
        real = terms(detector, detector.split(train)[1])
        others = [(labels == kind).nonzero().flatten() for kind in kinds if kind not in seen]
        pairs += [(real, terms(detector, contrast.subset(rows))) for rows in others]
    return detector.priors_, pairs


def unseen_classes(
    train: Features, contrast: Features, residual: Residual, folds: int, seed: int, progress: bool
) -> list[tuple[Terms, Terms]]:
    """Held-out samples of most classes and those of the rest, by a detector that has not seen the rest."""
    group = dealt(train, folds, seed)
    fitting, held = HEAT(seed=seed).split(train)
    assert fitting.labels is not None
    assert held.labels is not None
    taken_for = group[torch.cat([logits_of(b).argmax(1).cpu() for b in contrast.only(("logits",)).batches(CHUNK)])]
    pairs = []
    for fold in range(folds):
        kept = (group != fold).nonzero().flatten()

        def of(features: Features, rows: Tensor, labelled: bool = True, kept: Tensor = kept) -> Features:
            return features.subset(rows.nonzero().flatten()).among(kept, labelled)

        known, there = group[fitting.labels.cpu()] != fold, group[held.labels.cpu()] != fold
        detector = HEAT(residual=residual, seed=seed)
        detector.fit(of(fitting, known), of(contrast, taken_for != fold, labelled=False), progress=progress)
        pairs.append((terms(detector, of(held, there)), terms(detector, of(held, ~there, labelled=False))))
    return pairs


def judged(pairs: Sequence[tuple[Terms, Terms]], bound: float, odds: float) -> Verdict:
    found = [summary(corrected(real, bound, odds), corrected(other, bound, odds)) for real, other in pairs]
    return Verdict(*(float(np.mean([getattr(m, name) for m in found])) for name in ("fpr_at_95_id", "auroc")))


def terms(detector: HEAT, features: Features) -> Terms:
    """The composition in its own spreads, and the residual as a share of its bound."""
    energies, inner = detector.energies(features), detector.inner
    assert isinstance(inner, Hybrid)
    prior = energies["prior/joint"].double() / inner.temperature.double().cpu()
    return prior, energies["residual/joint"].double() / inner.residual.bound


def corrected(found: Terms, bound: float, odds: float) -> Tensor:
    """The score for another bound and other odds, of a residual trained at odds 1."""
    prior, share = found
    return prior + bound * (share.clamp(-ALMOST, ALMOST).atanh() - math.log(odds) / 2).tanh()
