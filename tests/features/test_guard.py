"""A guarded model gives what the model and the detector give, in one pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heat_ood.errors import NotFittedError
from heat_ood.features import Extractor, Features, Guard


class Norm(nn.Module):
    """A detector small enough to check by hand: the norm of avg and std, calibrated on a few scores."""

    def __init__(self, calibrated: bool = True) -> None:
        super().__init__()
        self.calibrated, self.calls = calibrated, 0
        self.register_buffer("scores", torch.linspace(0, 3, 50))

    def score(self, features: Features) -> Tensor:
        self.calls += 1
        return features.avg.norm(dim=1) + features.std.norm(dim=1)

    def p_values_of(self, score: Tensor, classes: Tensor | None = None) -> Tensor:
        self.classes = classes
        return (1 + (self.scores >= score[:, None]).sum(1)) / (len(self.scores) + 1)

    def p_value(self, features: Features) -> Tensor:
        return self.p_values_of(self.score(features))


class Plain:
    """No module, no shortcut: only what a detector must have."""

    calibrated = True

    def score(self, features: Features) -> Tensor:
        return features.avg.sum(1)

    def p_value(self, features: Features) -> Tensor:
        return torch.full((len(features),), 0.01)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(4, 3))
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), *pooled)


def test_guard_agrees_with_model_and_detector(model: nn.Module) -> None:
    extractor, detector, x = Extractor(model), Norm(), torch.rand(5, 3, 8, 8)
    guard = extractor.guard(detector)
    logits, score, p_value = guard(x)
    features = extractor(x)
    assert all(m.training for m in model.modules())
    with torch.no_grad():
        assert torch.equal(logits, model.eval()(x))
    assert torch.equal(score, detector.score(features))
    assert torch.equal(p_value, detector.p_value(features))
    assert torch.equal(guard.predict(x, fpr=0.3), p_value <= 0.3)
    assert not score.requires_grad


def test_detector_is_told_the_predicted_classes(model: nn.Module) -> None:
    detector = Norm()
    logits = Extractor(model).guard(detector)(torch.rand(5, 3, 8, 8)).logits
    assert torch.equal(detector.classes, logits.argmax(1))


def test_one_pass_and_one_score(model: nn.Module) -> None:
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    detector = Norm()
    guard = Extractor(model).guard(detector)
    for n in (4, 2):
        guard(torch.rand(n, 3, 8, 8))
    assert (len(passes), detector.calls) == (2, 2)


def test_uncalibrated(model: nn.Module) -> None:
    guard, x = Extractor(model).guard(Norm(calibrated=False)), torch.rand(2, 3, 8, 8)
    assert guard(x).p_value is None
    with pytest.raises(NotFittedError, match="calibrate"):
        guard.predict(x)


def test_detector_that_is_no_module(model: nn.Module) -> None:
    guard, x = Extractor(model).guard(Plain()), torch.rand(2, 3, 8, 8)
    assert guard(x).p_value.tolist() == pytest.approx([0.01, 0.01])
    assert guard.predict(x).all()


def test_detector_decides_by_its_own_rule(model: nn.Module) -> None:
    class Strict(Norm):
        def predict(self, features: Features, fpr: float) -> Tensor:
            raise NotFittedError(f"fpr {fpr} needs more samples")

    with pytest.raises(NotFittedError, match=r"0\.001"):
        Extractor(model).guard(Strict()).predict(torch.rand(2, 3, 8, 8), fpr=0.001)


def test_guard_moves_as_one(model: nn.Module) -> None:
    guard = Extractor(model).guard(Norm())
    assert isinstance(guard, Guard)
    guard.double()
    logits, score, _ = guard(torch.rand(2, 3, 8, 8, dtype=torch.float64))
    assert logits.dtype == score.dtype == guard.detector.scores.dtype == torch.float64
    guard.to("meta")
    assert {t.device.type for t in (*guard.model.parameters(), *guard.detector.buffers())} == {"meta"}


def test_without_a_head(model: nn.Sequential) -> None:
    guarded: Any = Extractor(model[:-2], head=False).guard(Norm())(torch.rand(2, 3, 8, 8))
    assert guarded.logits is None
    assert guarded.score.shape == (2,)
