"""A sample that cannot be used is named by the number that it has for the caller, whatever part of the data is read."""

from __future__ import annotations

import pytest
import torch

from heat_ood import Features, InputError, create

NAMING = [
    "gmm",
    "gmm-joint",
    "relative-gmm",
    "mahalanobis",
    "knn",
    "nnguide",
    "dice",
    "react",
    "vim",
    "kl-matching",
    "openmax",
    "ssd",
]


@pytest.mark.parametrize("method", NAMING)
@pytest.mark.parametrize("twice", [False, True])
def test_a_view_names_the_samples_of_its_owner(method: str, twice: bool) -> None:
    torch.manual_seed(0)
    avg, labels = torch.rand(80, 6), torch.arange(80) % 3
    features = Features(avg=avg, std=torch.rand(80, 6), labels=labels, head=(torch.randn(3, 6), None))
    avg[61, 2] = torch.nan
    view = features.subset(torch.arange(20, 80))
    if twice:
        view = view.subset(torch.arange(10, 60))
    with pytest.raises(InputError, match=r"sample 61\b"):
        create(method).fit(view)
