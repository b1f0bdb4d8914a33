"""K-means clusters that stand in for labels, as SSD does."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from ..errors import InputError
from ..features import Features, Space

__all__ = ["Clusters"]

SAMPLE = 20_000


class Clusters:
    """The nearest of ``k`` k-means centres; the centres come from at most 20,000 samples, drawn by the seed.

    Example:
        >>> z = torch.tensor([[0.0, 1.0], [0.1, 1.0], [5.0, 5.0], [5.1, 5.0]])
        >>> clusters = Clusters.of(Features(avg=z), Space(normalise=False), 2, seed=0)
        >>> a, b, c, d = clusters(z).tolist()
        >>> (a == b, c == d, a == c)
        (True, True, False)
    """

    def __init__(self, centres: Tensor) -> None:
        self.centres = centres

    @classmethod
    def of(cls, features: Features, space: Space, k: int, seed: int) -> Clusters:
        from sklearn.cluster import KMeans  # slow to import, seldom needed
        from sklearn.exceptions import ConvergenceWarning

        n = len(features)
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(n, generator=generator)[:SAMPLE].sort().values
        z = space(features.only(space.columns)[chosen]).double()
        z = z[torch.isfinite(z).all(1)]
        if not len(z):
            raise InputError(f"No sample of {features!r} has finite features. Extract them again in float32.")
        k = max(1, min(k, len(z) // 2))  # alone in its cluster, a sample shows no spread
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # few distinct samples make few clusters
            means = KMeans(k, n_init=3, random_state=seed).fit(z.cpu().numpy())
        clusters = cls(torch.from_numpy(means.cluster_centers_).to(z.device))
        return cls(clusters.centres[torch.unique(clusters(z))])

    def __len__(self) -> int:
        return len(self.centres)

    def __call__(self, z: Tensor) -> Tensor:
        """The cluster of each point."""
        return torch.cdist(z.double(), self.centres).nan_to_num().argmin(1)
