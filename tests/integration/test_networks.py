"""The small networks of experiments/networks.py: what they give, their loss, and that a training goes on."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heat_ood import Extractor

ROOT = Path(__file__).parents[2]


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in ("suites", "experiments"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import networks

    return networks


def test_the_vit_gives_tokens_pooled_both_ways_a_head_and_layers(networks: ModuleType) -> None:
    pytest.importorskip("timm")
    from small_vit import cifar10

    found = Extractor(cifar10().eval(), "stages")(torch.randn(3, 3, 32, 32))
    assert found.avg.shape == found.std.shape == (3, 128)
    assert found.head is not None
    assert len(found.layers) == 4
    assert all(layer.std.shape == (3, 128) for layer in found.layers.values())


def test_the_contrastive_loss_by_hand(networks: ModuleType) -> None:
    z = F.normalize(torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    losses = []
    for i in range(7):
        others = [a for a in range(7) if a != i]
        total = sum(math.exp(float(z[i] @ z[a]) / networks.TEMPERATURE) for a in others)
        own = [p for p in others if labels[p] == labels[i]]
        logs = [float(z[i] @ z[p]) / networks.TEMPERATURE - math.log(total) for p in own]
        losses.append(-sum(logs) / len(logs))
    assert float(networks.supervised_contrastive(z, labels)) == pytest.approx(sum(losses) / 7, rel=1e-12)


def test_a_batch_with_a_class_of_one_sample_has_a_finite_loss(networks: ModuleType) -> None:
    z = F.normalize(torch.randn(3, 2, generator=torch.Generator().manual_seed(0))).requires_grad_()
    loss = networks.supervised_contrastive(z, torch.tensor([0, 0, 1]))
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_an_interrupted_training_ends_with_the_same_weights(
    networks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[nn.Module] = []
    stop = 0

    def task() -> object:
        model = nn.Linear(4, 3)
        made.append(model)
        generator = torch.Generator().manual_seed(0)
        x, y, calls = torch.randn(64, 4, generator=generator), torch.randint(3, (64,), generator=generator), [0]

        def loss(a: torch.Tensor, b: torch.Tensor, _: torch.Generator) -> torch.Tensor:
            calls[0] += 1
            if calls[0] == stop:
                raise KeyboardInterrupt
            return F.cross_entropy(model(F.dropout(a, 0.5)), b)

        return networks.Task(model, x, y, loss)

    def finish(folder: Path, _: object, facts: dict[str, object]) -> None:
        facts["accuracy"] = 0.5

    monkeypatch.setattr(networks, "contrastive", task)
    monkeypatch.setattr(networks, "finish_contrastive", finish)
    monkeypatch.setitem(networks.RECIPES, "contrastive", networks.Recipe(3, 16))
    for folder in ("whole", "parts"):
        (tmp_path / folder).mkdir()
    networks.train("contrastive", tmp_path / "whole")
    stop = 7
    with pytest.raises(KeyboardInterrupt):
        networks.train("contrastive", tmp_path / "parts")
    stop = 0
    networks.train("contrastive", tmp_path / "parts")
    assert torch.equal(made[0].weight, made[2].weight)
    assert not torch.equal(made[1].weight, made[2].weight)
    assert [f.name for f in (tmp_path / "parts").iterdir()] == ["facts.json"]
