"""Small methods that ahead.py judges, each by its paper's formula: ``fit`` on ID features, energies of others.

They are candidates for the view of the last layer and no part of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heat_ood import Features

Score = Callable[[Features], Tensor]


def read(features: Features) -> Tensor:
    return torch.as_tensor(features.avg).float()


def head_of(train: Features) -> tuple[Tensor, Tensor]:
    assert train.head is not None
    weight, bias = (torch.as_tensor(t).float() for t in train.head)
    return weight, bias


def means_of(z: Tensor, labels: Tensor, classes: int) -> Tensor:
    sums = torch.zeros(classes, z.shape[1]).index_add_(0, labels, z)
    return sums / torch.bincount(labels, minlength=classes).clamp(min=1)[:, None]


def neco(train: Features) -> Score:
    """The share of the standardised feature within the C − 1 first principal axes (Ben Ammar et al., 2024)."""
    z = read(train)
    centre, spread = z.mean(0), z.std(0).clamp(min=1e-6)
    weight, bias = head_of(train)
    _, _, axes = torch.pca_lowrank((z - centre) / spread, q=min(len(weight) - 1, z.shape[1] // 2), center=False)

    def score(features: Features) -> Tensor:
        x = read(features)
        y = (x - centre) / spread
        return -(y @ axes).norm(dim=1) / y.norm(dim=1) * (x @ weight.T + bias).amax(1)

    return score


def nci(train: Features) -> Score:
    """The feature, centred and of unit length, along its class's weights (Liu and Qin, 2025), without the norm."""
    centre, (weight, bias) = read(train).mean(0), head_of(train)

    def score(features: Features) -> Tensor:
        z = read(features)
        own = weight[(z @ weight.T + bias).argmax(1)]
        return -torch.linalg.vecdot(own, z - centre) / (z - centre).norm(dim=1)

    return score


def she(train: Features) -> Score:
    """The inner product with the mean of the predicted class (Zhang et al., 2023)."""
    z, (weight, bias) = read(train), head_of(train)
    right = (z @ weight.T + bias).argmax(1)
    means = means_of(z, right, len(weight))

    def score(features: Features) -> Tensor:
        x = read(features)
        return -torch.linalg.vecdot(x, means[(x @ weight.T + bias).argmax(1)])

    return score


def ora(train: Features) -> Score:
    """The largest angle, at the mean, between a feature and its projection on a decision boundary."""
    centre, (weight, bias) = read(train).mean(0), head_of(train)
    square = torch.cdist(weight, weight).square().clamp(min=1e-12)
    gram = weight @ weight.T

    def score(features: Features) -> Tensor:
        z = read(features)
        logits = z @ weight.T + bias
        top, c = logits.max(1, keepdim=True)
        c, v = c.squeeze(1), z - centre
        step = (top - logits) / square[c]  # z − step (w_c − w_k) is on the boundary
        along = (v @ weight.T).gather(1, c[:, None]) - v @ weight.T
        length = v.square().sum(1, keepdim=True)
        inner = length - step * along
        other = (length - 2 * step * along + step.square() * square[c]).clamp(min=1e-12)
        cosine = (inner / (length * other).sqrt()).clamp(-1, 1)
        cosine.scatter_(1, c[:, None], 1.0)
        return -cosine.arccos().amax(1)

    assert gram.shape == square.shape
    return score


def core(train: Features) -> Score:
    """What is orthogonal to the head's rows, against that of the predicted class's mean, by cosine."""
    z, (weight, bias) = read(train), head_of(train)
    inside = torch.linalg.svd(weight - weight.mean(0), full_matrices=False)
    axes = inside.Vh[1e-4 * inside.S[0] < inside.S]
    if len(axes) >= z.shape[1] - 8:
        axes = axes[: z.shape[1] // 2]
    centre = z.mean(0)

    def rest(x: Tensor) -> Tensor:
        return (x - centre) - (x - centre) @ axes.T @ axes

    means = means_of(rest(z), (z @ weight.T + bias).argmax(1), len(weight))

    def score(features: Features) -> Tensor:
        x = read(features)
        own = means[(x @ weight.T + bias).argmax(1)]
        return -torch.cosine_similarity(rest(x), own, dim=1)

    return score


def weiper(train: Features, draws: int = 10, size: float = 0.9) -> Score:
    """The mean over perturbed weights of the largest probability (Granz et al., 2024)."""
    weight, bias = head_of(train)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(draws, *weight.shape, generator=generator)
    noise = noise / noise.norm(dim=2, keepdim=True) * weight.norm(dim=1)[:, None] * size

    def score(features: Features) -> Tensor:
        z = read(features)
        plain = z @ weight.T + bias
        return -torch.stack([(plain + z @ one.T).softmax(1).amax(1) for one in noise]).mean(0)

    return score


def cosine(train: Features) -> Score:
    """The largest cosine with the mean of a class, about the mean of all."""
    z = read(train)
    centre = z.mean(0)
    assert train.labels is not None
    means = means_of(z - centre, torch.as_tensor(train.labels), int(train.labels.max()) + 1)
    means = means / means.norm(dim=1, keepdim=True)

    def score(features: Features) -> Tensor:
        x = read(features) - centre
        return -(x @ means.T).amax(1) / x.norm(dim=1)

    return score


METHODS: dict[str, Callable[..., Any]] = {
    "neco": neco,
    "nci": nci,
    "she": she,
    "ora": ora,
    "core": core,
    "weiper": weiper,
    "cosine": cosine,
}
