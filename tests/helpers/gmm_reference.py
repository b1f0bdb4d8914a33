"""Clouds of points, and the Gaussian mixture computed independently of the library."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from heat_ood.features import Features

__all__ = ["by_numpy", "cloud", "reference", "seeded"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cloud(n: int = 300, d: int = 6, classes: int = 4, seed: int = 0, relu: bool = False) -> Features:
    """Correlated classes of unequal size, in float64."""
    g = seeded(seed)
    y = (torch.rand(n, generator=g).square() * classes).long()
    y[:classes] = torch.arange(classes)
    y[-classes:] = torch.arange(classes)
    mix = torch.randn(d, d, generator=g, dtype=torch.float64) / math.sqrt(d)
    centres = 2 * torch.randn(classes, d, generator=g, dtype=torch.float64)
    z = centres[y] + torch.randn(n, d, generator=g, dtype=torch.float64) @ mix
    return Features(avg=z.relu() if relu else z, labels=y)


def by_numpy(features: Features, normalise: bool, shrinkage: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class means, shrunk pooled covariance and class shares, the long way."""
    z, y = features.avg.numpy(), features.labels.numpy()
    z = z / np.linalg.norm(z, axis=1, keepdims=True) if normalise else z
    classes = y.max() + 1
    means = np.stack([z[y == c].mean(0) for c in range(classes)])
    covariance = (z - means[y]).T @ (z - means[y]) / len(z)
    d = len(covariance)
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    return means, covariance, np.bincount(y) / len(y)


def reference(features: Features, normalise: bool, shrinkage: float, frequencies: bool) -> MixtureSameFamily:
    means, covariance, shares = (torch.from_numpy(a) for a in by_numpy(features, normalise, shrinkage))
    weights = shares if frequencies else torch.ones_like(shares)
    return MixtureSameFamily(Categorical(weights), MultivariateNormal(means, covariance.expand(len(means), -1, -1)))
