"""The measured rate of false alarms is at most the one asked for: every method, with ties, alone and in batches."""

from __future__ import annotations

import pytest
import torch

from harness.alarms import LAWS, RATES, margin, pooled, simulate
from harness.targets import method_data

pytestmark = pytest.mark.filterwarnings("ignore")


def test_false_alarms_of_every_method_with_ties() -> None:
    torch.set_num_threads(1)
    found = [
        row
        for name in method_data.CASES
        for row in simulate(name, 8, sizes=(99,), laws=("one sample", "ten samples"), batches=("one", "64"))
    ]
    assert {row["method"] for row in found} == set(method_data.CASES)
    above = [row for row in (*found, *pooled(found)) if row["above"]]
    assert not above, above


def test_a_rate_is_measured_and_not_merely_small() -> None:
    """Where no two samples are equal, the rate is the one asked for."""
    torch.set_num_threads(1)
    found = list(simulate("gmm", 60, sizes=(99,), laws=("all different",), batches=("64",)))
    for row in found:
        assert row["fpr"] - (margin(row["fpr"], 60) - row["fpr"]) < row["rate"] <= margin(row["fpr"], 60)
    assert [row["fpr"] for row in found] == list(RATES)
    assert set(LAWS.values()) >= {1, 10}
