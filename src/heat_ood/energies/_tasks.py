"""Tasks made of ID data alone, by which priors are judged: classes that are left out, and distortions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import Argument, InputError
from ..features import Features, Moments, Space, working_dtype
from ._base import CHUNK, Energy
from ._discriminant import Discriminant
from ._gmm import GaussianMixture
from ._head import free_energy, logits_of
from ._methods import create_prior
from ._relative import RelativeMixture, as_one

__all__ = ["Task", "dealt", "distortion_tasks", "left_out_tasks"]

GAUSSIANS = (GaussianMixture, RelativeMixture, Discriminant)
"""What follows from class moments alone, so that classes can be left out at little cost."""


@dataclass(frozen=True)
class Task:
    """ID samples against others, as the energies of some priors, (n, K) each, float64.

    Args:
        name: what the others are.
        real: held-out ID samples; a rule may learn from them.
        other: what is to be told from them.
    """

    name: str
    real: Tensor
    other: Tensor


def distortion_tasks(priors: Mapping[str, Energy], held: Features, contrast: Features) -> list[Task]:
    """Held-out samples against each kind of distortion, by fitted priors; ``contrast.labels`` are the kinds."""
    labels = contrast.labels
    if labels is None:
        raise InputError(
            "The contrast features do not say which distortion each sample has. Make them with Extractor.contrast."
        )
    real = matrix(priors, held)
    rows = {kind: (labels == kind).nonzero().flatten() for kind in sorted(set(labels.tolist()))}
    return [Task(f"kind {kind}", real, matrix(priors, contrast.subset(r))) for kind, r in rows.items()]


def matrix(priors: Mapping[str, Energy], features: Features) -> Tensor:
    return torch.stack([prior.score(features).double() for prior in priors.values()], 1)


def left_out_tasks(names: Sequence[str], train: Features, held: Features, folds: int, seed: int) -> list[Task]:
    """Held-out samples of most classes against those of the rest, by priors that have not seen the rest.

    The classes are dealt into ``folds`` groups and each is left out once. Moments are gathered by group, in one pass
    for each space, and a Gaussian without a group costs a few sums; logits of a left-out class are dropped.
    """
    group = dealt(train, folds, seed)
    moments = {space: grouped_moments(train, space, group, folds) for space in spaces_of(names)}
    tasks = []
    assert held.labels is not None
    for fold in range(folds):
        kept = (group != fold).nonzero().flatten()
        known = group[held.labels.cpu()] != fold
        parts = [held.subset(rows.nonzero().flatten()) for rows in (known, ~known)]
        if not all(map(len, parts)):
            raise InputError(
                f"No held-out sample is of a class that group {fold} leaves {'in' if len(parts[1]) else 'out'}. Use "
                "fewer folds, or pass more samples."
            )
        scorers = [scorer(name, moments, fold, kept, train) for name in names]
        real, other = (torch.stack([score(part).double() for score in scorers], 1) for part in parts)
        tasks.append(Task(f"classes {fold}", real, other))
    return tasks


def dealt(train: Features, folds: int, seed: int) -> Tensor:
    """The group of each class, if the samples can be told by classes that are left out."""
    classes = train.classes or 0
    if train.labels is None or folds < 2 or classes < 2 * folds:
        raise InputError(
            "Leaving classes out takes labels, at least two folds, and two classes for each; there are "
            f"{'no labels' if train.labels is None else f'{classes} classes'} for ",
            Argument("folds", folds),
            ". Use fewer folds, or none: ",
            Argument("folds", 0),
            ".",
        )
    if strange := sorted(set(range(classes)) ^ set(train.labels.tolist())):
        raise InputError(
            f"Leaving classes out takes training samples of each of {classes} classes, numbered from 0: class "
            f"{', '.join(map(str, strange[:5]))} has none, or is not among them. Pass samples of every class, or ",
            Argument("folds", 0),
            ".",
        )
    return torch.from_numpy(np.random.default_rng(seed).permutation(classes) % folds)


def spaces_of(names: Sequence[str]) -> list[Space]:
    """The spaces that the Gaussian ones among these priors live in."""
    return list(dict.fromkeys(p.space for p in map(create_prior, names) if isinstance(p, GAUSSIANS)))


def grouped_moments(train: Features, space: Space, group: Tensor, folds: int) -> list[Moments]:
    """The moments of each group of classes."""
    found: dict[int, Moments] = {}
    for batch in train.only(space.columns).batches(CHUNK):
        z, labels = space(batch), batch.labels
        assert labels is not None
        own = group[labels.cpu()].to(z.device)
        for fold in set(own.tolist()):
            rows = own == fold
            part = Moments.of([(z[rows], labels[rows])], len(group))
            found[fold] = found[fold] + part if fold in found else part
    return [found[fold] for fold in range(folds)]


def without(parts: Sequence[Moments], fold: int, kept: Tensor) -> Moments:
    """The moments of all classes but those of one group, and of these classes alone."""
    rest = [m for k, m in enumerate(parts) if k != fold]
    total = rest[0]
    for m in rest[1:]:
        total = total + m
    return replace(total, counts=total.counts[kept], sums=total.sums[kept])


def scorer(
    name: str, moments: Mapping[Space, Sequence[Moments]], fold: int, kept: Tensor, train: Features
) -> Callable[[Features], Tensor]:
    """A prior by its name that knows only some classes."""
    prior = create_prior(name)
    if name == "energy":
        return lambda features: torch.cat(
            [free_energy(logits_of(b)[:, kept]) for b in features.only(("logits",)).batches(CHUNK)]
        )
    if isinstance(prior, GAUSSIANS):
        known, space, some = without(moments[prior.space], fold, kept), prior.space, train[:1]
        widths, dtype = space.widths(some), working_dtype(space.blocks(some)[0])
        main = prior.density if isinstance(prior, RelativeMixture) else prior
        main.from_moments(known, widths, dtype)
        if isinstance(prior, RelativeMixture):
            prior.background.from_moments(as_one(known, (prior.density.white != 0).any(0)), widths, dtype)
        return prior.eval().score
    raise InputError(
        f"{name} cannot be judged by classes that are left out: energy, gmm, relative-gmm and discriminant can, of any "
        "layer. Leave it out, or pass ",
        Argument("folds", 0),
        ".",
    )
