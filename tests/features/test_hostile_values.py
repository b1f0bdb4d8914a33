"""Labels, heads and features that no honest set has: refused by name, before memory is taken for them."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heat_ood import HEAT, Features, create
from heat_ood.errors import InputError

Z = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 4


def with_label(label: int) -> torch.Tensor:
    labels = LABELS.clone()
    labels[7] = label
    return labels


@pytest.mark.parametrize("label", [40_000, 10**8, 2**40])
@pytest.mark.parametrize("head", [None, (torch.ones(4, 6), None)])
def test_a_label_that_nothing_speaks_for(label: int, head: Any) -> None:
    with pytest.raises(InputError, match=rf"sample 7 is of class {label:,}: .* numbers up to 32,767 are read"):
        Features(avg=Z, labels=with_label(label), head=head)


def test_a_label_of_a_hundred_million_takes_no_memory(tmp_path: Path) -> None:
    """By the route that took 13.6 GB, under a limit of what torch takes to be imported and a little more."""
    code = f"""
import resource, torch
import heat_ood
from heat_ood.energies import GaussianMixture
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), used + (1 << 29)))
try:
    GaussianMixture().fit(heat_ood.Features(avg=torch.rand(40, 6), labels=[{10**8}] * 40))
except heat_ood.errors.InputError as error:
    print("refused")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout == "refused\n", found.stderr[-500:]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_labels_up_to_the_number_of_samples_or_of_classes_are_read() -> None:
    n = 40_000
    Features(avg=torch.zeros(n, 1), labels=torch.arange(n))
    wide = Features(avg=torch.zeros(2, 1), labels=[0, 39_999], head=(torch.zeros(n, 1), None))
    assert wide.classes == n


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0] * 40, "must be integers"),
        ([True] * 40, "must be integers"),
        ([10**30] * 40, "cannot be made a tensor"),
        (["cat"] * 40, "cannot be made a tensor"),
        (np.array([None] * 40), "cannot be made a tensor"),
        (np.full(40, 2**63 + 5, dtype=np.uint64), "larger than any class number"),
    ],
)
def test_labels_that_are_no_class_numbers(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Features(avg=Z, labels=labels)


@pytest.mark.parametrize("label", [-1, -100])
def test_samples_without_a_class_are_of_none(label: int) -> None:
    some = Features(avg=Z, labels=with_label(label), head=(torch.randn(4, 6), None))
    with pytest.raises(InputError, match="of none of the classes"):
        some.among(torch.tensor([0, 1, 2, 3]))
    with pytest.raises(InputError, match="out of range"):
        create("gmm").fit(some)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["weight", "bias"])
def test_a_head_that_is_not_finite_is_refused(value: float, where: str) -> None:
    weight, bias = torch.randn(4, 6), torch.randn(4)
    (weight if where == "weight" else bias)[2] = value
    with pytest.raises(InputError, match=r"head is not finite .* 1 of 4 classes, the first is class 2"):
        create("vim").fit(Features(avg=Z, labels=LABELS, head=(weight, bias)))


@pytest.mark.parametrize("column", ["avg", "std", "avg@early"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("which", ["training", "contrast"])
def test_features_that_are_not_finite_are_named_whole(column: str, value: float, which: str) -> None:
    """The column, how many over all batches, and the first, by the caller's own number."""

    def some(seed: int) -> Features:
        z = torch.randn(3000, 12, generator=torch.Generator().manual_seed(seed))
        labels = torch.arange(3000) % 3
        return Features(avg=z[:, :4], std=z[:, 4:8].abs(), labels=labels, layers={"early": z[:, 8:]})

    given = {"training": some(0), "contrast": some(1)}
    bad = given[which].column(column)
    assert bad is not None
    bad[[1500, 2600], 1] = value
    rows = torch.arange(3000).flip(0)
    text = rf"3,000 samples .*{column} is not finite \(NaN or infinite\) in sample 2600, the first of 2 such\."
    with pytest.raises(InputError, match=text):
        HEAT().fit(given["training"].subset(rows), given["contrast"].subset(rows), progress=False)


def test_a_column_that_is_not_read_may_hold_anything() -> None:
    z = torch.rand(300, 6)
    odd = Features(avg=z, std=torch.full_like(z, float("nan")), labels=torch.arange(300) % 3)
    assert HEAT(("gmm",), residual=None).fit(odd).score(z).isfinite().all()
