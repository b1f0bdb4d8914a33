"""``torch.compile(guard)``: the same answers. The network is read as ever; what is compiled is the detector."""

from __future__ import annotations

import pytest
import torch

from export_data import HALF, noise
from heat_ood.export import Exported
from heat_ood.features import Guard


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_guard_gives_the_same_answers(small: tuple[Guard, Exported]) -> None:
    torch._dynamo.reset()
    guard = small[0]
    compiled = torch.compile(guard, backend="eager")  # what inductor generates is torch's to test, and takes minutes
    for count in (5, 2, 1):
        images = HALF.normalised(noise(count, count))
        found, expected = compiled(images), guard(images)
        torch.testing.assert_close(found.score, expected.score, rtol=1e-5, atol=1e-5)
        assert torch.equal(found.logits, expected.logits)
        assert torch.equal(found.p_value, expected.p_value)
    assert torch._dynamo.utils.counters["stats"]["calls_captured"] > 0
    torch._dynamo.reset()
