"""A guarded model gives what the model and the detector give, in one pass."""

import pytest
import torch
from torch import nn

from heat_ood import HEAT, Extractor, NotFittedError, Residual


@pytest.fixture
def model():
    torch.manual_seed(0)
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3))
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), *pooled)


@pytest.fixture
def extractor(model):
    return Extractor(model)


@pytest.fixture
def detector(extractor):
    loader = [(torch.rand(60, 3, 8, 8), torch.arange(60) % 3) for _ in range(2)]
    return HEAT(residual=Residual(hidden=8, epochs=1)).fit(extractor.extract(loader))


def calibrated(detector, extractor):
    return detector.calibrate(extractor(torch.rand(400, 3, 8, 8)))


def test_agrees_with_model_and_detector(model, extractor, detector):
    x = torch.rand(5, 3, 8, 8)
    guard = extractor.guard(calibrated(detector, extractor))
    modes = [m.training for m in model.modules()]
    logits, score, p_value = guard(x)

    assert [m.training for m in model.modules()] == modes
    features = extractor(x)
    assert torch.equal(score, detector.score(features))
    assert torch.equal(p_value, detector.p_value(features))
    assert torch.equal(guard.predict(x, fpr=0.1), detector.predict(features, fpr=0.1))
    with torch.no_grad():
        assert torch.allclose(logits, model.eval()(x), atol=1e-6)


def test_runs_the_backbone_once(model, extractor, detector):
    guard = extractor.guard(calibrated(detector, extractor))
    guard(torch.rand(2, 3, 8, 8))
    calls = []
    handle = model[0].register_forward_hook(lambda *_: calls.append(1))
    guard(torch.rand(4, 3, 8, 8))
    handle.remove()
    assert len(calls) == 1


def test_ranks_within_the_predicted_class(extractor, detector):
    model = extractor.model
    with torch.no_grad():  # a head that predicts every class often enough to calibrate each
        model[-1].weight.mul_(50)
        model[-1].bias.copy_(-model[-1].weight @ extractor(torch.rand(200, 3, 8, 8)).avg.mean(0))
    loader = [(torch.rand(60, 3, 8, 8), torch.arange(60) % 3) for _ in range(2)]
    detector = HEAT(residual=None).fit(extractor.extract(loader))
    detector.calibrate(extractor(torch.rand(600, 3, 8, 8)), per_class=True)
    x = torch.rand(20, 3, 8, 8)
    assert torch.equal(extractor.guard(detector)(x).p_value, detector.p_value(extractor(x)))


def test_without_calibration_there_is_a_score_but_no_decision(extractor, detector):
    guard = extractor.guard(detector)
    assert guard(torch.rand(2, 3, 8, 8)).p_value is None
    with pytest.raises(NotFittedError, match="calibrate"):
        guard.predict(torch.rand(2, 3, 8, 8))


def test_no_gradient_no_change_even_when_forward_raises(model, extractor, detector):
    guard = extractor.guard(detector)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert not guard(torch.rand(2, 3, 8, 8)).score.requires_grad
    with pytest.raises(RuntimeError):
        guard(torch.rand(2, 7, 8, 8))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())


def test_neither_head_nor_logits_are_made_again(model, extractor, detector, monkeypatch):
    guard = extractor.guard(calibrated(detector, extractor))
    x = torch.rand(4, 3, 8, 8)
    expected = guard(x)
    _, features = extractor.read(x)
    assert features.head.weight.data_ptr() == model[-1].weight.data_ptr(), "the model's own, not a copy"

    def refuse(*_):
        raise AssertionError("the logits are there already")

    monkeypatch.setattr("heat_ood.features._features.Head.__call__", refuse)
    assert all(torch.equal(a, b) for a, b in zip(guard(x), expected, strict=True))


def test_half_precision_scores_as_stored_features_do(model, detector):
    """The model's own logits are rounded; what a detector reads is the head's product in full precision."""
    extractor = Extractor(model, autocast=torch.bfloat16)
    detector.fingerprint = extractor.compute_fingerprint()
    x = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(extractor.guard(detector)(x).score, detector.score(extractor(x)))
