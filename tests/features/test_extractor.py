"""The extractor on hand-made odd networks: what it finds, what it refuses, and that it leaves the model alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heat_ood.errors import InputError
from heat_ood.features import Extractor
from small_networks import Net, expected_std, images


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean((2, 3)),
    "mean negative": lambda x: x.mean(dim=[-1, -2]),
    "mean keepdim": lambda x: x.mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1),
    "mean twice": lambda x: x.mean(3).mean(2),
    "view mean": lambda x: x.view(x.shape[0], x.shape[1], -1).mean(2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "adaptive view": lambda x: F.adaptive_avg_pool2d(x, (1, 1)).view(len(x), -1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, x.shape[-1])[:, :, 0, 0],
    "sum": lambda x: x.sum((2, 3)) / x[0, 0].numel(),
    "max": lambda x: x.amax((2, 3)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, 1).flatten(1),
    "channels last": lambda x: x.permute(0, 2, 3, 1).mean((1, 2)),
    "tokens": lambda x: x.flatten(2).transpose(1, 2).mean(1),
}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("size", [8, 2])
def test_pooling_by_any_function(pooling: str, size: int) -> None:
    model, x = Net(lambda net, x: net.final(POOLINGS[pooling](x))), images(size=size)
    features = Extractor(model)(x)
    model.eval()
    with torch.no_grad():
        maps = model.maps(x)
        torch.testing.assert_close(features.avg, POOLINGS[pooling](maps))
        torch.testing.assert_close(features.std, expected_std(maps))
        torch.testing.assert_close(features.logits, model(x))


ENDINGS: dict[str, tuple[Callable[[Net, Tensor], Any], Callable[[Tensor], Tensor]]] = {
    "dropout": (lambda net, x: net.final(net.drop(x.mean((2, 3)))), lambda x: x.mean((2, 3))),
    "functional dropout": (
        lambda net, x: net.final(F.dropout(x.mean((2, 3)), 0.5, net.training)),
        lambda x: x.mean((2, 3)),
    ),
    "tuple": (lambda net, x: (x.mean((2, 3)), net.final(x.mean((2, 3)))), lambda x: x.mean((2, 3))),
    "list of dict": (lambda net, x: [{"out": net.final(x.mean((2, 3)))}], lambda x: x.mean((2, 3))),
    "dict": (lambda net, x: {"z": x.mean((2, 3)), "logits": net.final(x.mean((2, 3)))}, lambda x: x.mean((2, 3))),
    "object": (lambda net, x: SimpleNamespace(logits=net.final(x.mean((2, 3)))), lambda x: x.mean((2, 3))),
    "in-place after": (lambda net, x: (net.final(x.mean((2, 3))), x.mul_(0))[0], lambda x: x.mean((2, 3))),
    "in-place on the vector": (lambda net, x: in_place(net, x), lambda x: x.mean((2, 3))),
    "shared layer": (lambda net, x: shared(net, x), lambda x: x.mean((2, 3)) * 2),
    "normalised": (lambda net, x: net.final(F.normalize(x.mean((2, 3)))), lambda x: F.normalize(x.mean((2, 3)))),
    "gate": (
        lambda net, x: net.final((x * x.mean((2, 3), keepdim=True).sigmoid()).mean((2, 3))),
        lambda x: gated(x).mean((2, 3)),
    ),
}


def gated(x: Tensor) -> Tensor:
    return x * x.mean((2, 3), keepdim=True).sigmoid()


def in_place(net: Net, x: Tensor) -> Tensor:
    z = x.mean((2, 3))
    logits = net.final(z)
    z.zero_()
    return logits


def shared(net: Net, x: Tensor) -> Tensor:
    z = x.mean((2, 3))
    net.final(z)
    logits: Tensor = net.final(z * 2)
    net.final(z * 3)
    return logits


@pytest.mark.parametrize("ending", ENDINGS)
def test_any_ending(ending: str) -> None:
    finish, reads = ENDINGS[ending]
    model, x = Net(finish), images()
    features = Extractor(model)(x)
    model.eval()
    with torch.no_grad():
        maps = model.maps(x)
        torch.testing.assert_close(features.avg, reads(maps))
        torch.testing.assert_close(features.std, expected_std(gated(maps) if ending == "gate" else maps))
        torch.testing.assert_close(features.logits, F.linear(reads(maps), model.final.weight, model.final.bias))


def test_in_place_relu_after_a_layer_does_not_reach_its_features() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    x = images()
    features = Extractor(model, layers=("0",))(x)
    with torch.no_grad():
        maps = model[0](x)
    assert (features.layers["0"].avg < 0).any()
    torch.testing.assert_close(features.layers["0"].avg, maps.mean((2, 3)))
    torch.testing.assert_close(features.std, expected_std(maps.relu()))


def test_flattened_maps_are_the_vector_and_have_a_std() -> None:
    model, x = Net(lambda net, x: net.final(x.flatten(1)), width=12 * 16), images()
    features = Extractor(model)(x)
    model.eval()
    with torch.no_grad():
        maps = model.maps(x)
    torch.testing.assert_close(features.avg, maps.flatten(1))
    torch.testing.assert_close(features.std, expected_std(maps))


def test_layers_after_the_pooling_leave_the_std_of_the_maps() -> None:
    class Late(Net):
        def __init__(self) -> None:
            super().__init__(width=7)
            self.mix, self.norm = nn.Conv2d(12, 7, 1), nn.LayerNorm(7)

        def forward(self, x: Tensor) -> Tensor:
            z = self.norm(self.mix(F.adaptive_avg_pool2d(self.maps(x), 1)).flatten(1))
            out: Tensor = self.final(F.hardswish(z))
            return out

    model, x = Late(), images()
    features = Extractor(model)(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(features.std, expected_std(model.maps(x)))
    assert features.avg.shape == (4, 7)


def test_convolution_as_head() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 5, 1), nn.Flatten())
    x = images()
    features = Extractor(model)(x)
    assert features.head.weight.shape == (5, 4)
    with torch.no_grad():
        torch.testing.assert_close(features.logits, model(x))


def test_vectors_only() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 5))
    features = Extractor(model)(images(size=4))
    assert features.std is None
    assert features.avg.shape == (4, 16)
    with pytest.raises(InputError, match="no stages"):
        Extractor(model, layers="stages")(images(size=4))


def test_parametrised_head() -> None:
    model = Net()
    nn.utils.parametrizations.weight_norm(model.final)
    for head in (None, "final", model.final):
        features = Extractor(model, head=head)(images())
        torch.testing.assert_close(features.head.weight, model.final.weight.detach())


# The model stays as it is


def state_of(model: nn.Module) -> tuple[Any, ...]:
    tensors = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [(p.requires_grad, p.grad) for p in model.parameters()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    return tensors, flags, hooks, [m.training for m in model.modules()], [set(vars(m)) for m in model.modules()]


def assert_untouched(before: tuple[Any, ...], model: nn.Module) -> None:
    after = state_of(model)
    assert all(torch.equal(before[0][k], after[0][k]) for k in before[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("layers", [None, ("conv",), "stages"])
def test_model_is_untouched(layers: Any) -> None:
    model = Net()
    model.bn.eval()
    model.conv.weight.requires_grad_(False)
    before = state_of(model)
    extractor = Extractor(model, layers=layers, head="final")
    first = extractor(images(2).fill_(0.5))
    extractor(images(3))
    assert_untouched(before, model)
    assert not any(c.requires_grad for c in first.columns.values())
    with torch.no_grad():
        model.final.weight.add_(1)
    assert not torch.equal(first.head.weight, model.final.weight)


def test_random_state_is_untouched() -> None:
    model, x = Net(lambda net, x: net.final(x.mean((2, 3)) + 0 * torch.rand(1))), images()
    extractor, before = Extractor(model), torch.get_rng_state()
    extractor(x)
    extractor(x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("calls", [0, 1])
def test_model_is_untouched_when_it_raises(calls: int) -> None:
    def finish(net: Net, x: Tensor) -> Tensor:
        if x.shape[0] == 3:
            raise RuntimeError("boom")
        return net.final(x.mean((2, 3)))

    model = Net(finish)
    before, extractor = state_of(model), Extractor(model, layers=("conv", "bn"), head="final")
    for _ in range(calls):
        extractor(images(2))
    with pytest.raises(RuntimeError, match="boom"):
        extractor(images(3))
    assert_untouched(before, model)
    assert torch.is_grad_enabled()
    assert len(extractor(images(2))) == 2


def test_features_can_be_learned_from() -> None:
    features = Extractor(Net())(images())
    layer = nn.Linear(12, 1)
    layer(features.avg).sum().backward()
    assert layer.weight.grad is not None


# One pass, and the flow


def test_one_pass_a_batch() -> None:
    model, passes = Net(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    extractor = Extractor(model, layers=("conv",))
    for n in (4, 2, 1):
        assert len(extractor(images(n))) == n
    assert len(passes) == 3


def test_a_pass_is_read_directly_once_that_is_seen_to_give_the_same() -> None:
    """The first batch goes through twice: what modules tell must be what every call tells, to the last bit."""
    body = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    model, passes = nn.Sequential(*body), list[int]()
    model.register_forward_hook(lambda *_: passes.append(1))
    extractor = Extractor(model, layers=("0",))
    for n in (4, 2, 1):
        assert len(extractor(images(n))) == n
    assert len(passes) == 3 + 1


def test_a_flow_that_changes_is_followed() -> None:
    class Caching(Net):
        cache: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.cache is None:
                self.cache = torch.ones(3).exp().log()
            out: Tensor = self.final(self.maps(x * self.cache[0]).mean((2, 3)))
            return out

    model, x = Caching(), images()
    extractor = Extractor(model)
    for _ in range(3):
        features = extractor(x)
        torch.testing.assert_close(features.logits, model.eval()(x).detach())
        torch.testing.assert_close(features.std, expected_std(model.maps(x).detach()))


def test_weights_may_change_between_batches() -> None:
    model, x = Net(), images()
    extractor = Extractor(model)
    one = extractor(x)
    with torch.no_grad():
        model.final.weight.mul_(2)
    two = extractor(x)
    torch.testing.assert_close(two.logits, model.eval()(x).detach())
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16])
def test_autocast_gives_float32_features(autocast: torch.dtype) -> None:
    model, x = Net(), images()
    features, exact = Extractor(model, layers="stages", autocast=autocast)(x), Extractor(model)(x)
    assert {c.dtype for c in features.columns.values()} == {torch.float32}
    torch.testing.assert_close(features.avg, exact.avg, rtol=0.05, atol=0.02)
    torch.testing.assert_close(features.std, exact.std, rtol=0.05, atol=0.02)


def test_double_and_bfloat16_models() -> None:
    assert Extractor(Net().double())(images().double()).avg.dtype == torch.float64
    assert Extractor(Net().bfloat16())(images().bfloat16()).avg.dtype == torch.float32


def test_device_must_be_the_models() -> None:
    assert len(Extractor(Net(), device="cpu")(images())) == 4
    with pytest.raises(InputError, match=r"model\.to\('meta'\)"):
        Extractor(Net(), device="meta")(images())


def test_wrapped_models_are_seen_through() -> None:
    model, x = Net(), images()
    wrapped = nn.DataParallel(model)
    assert torch.equal(Extractor(wrapped)(x).avg, Extractor(model)(x).avg)
    assert Extractor(wrapped).fingerprint == Extractor(model).fingerprint
    assert Extractor(torch.compile(model)).fingerprint == Extractor(model).fingerprint


# Fingerprints


def test_fingerprint_tells_models_and_layers_apart() -> None:
    model = Net()
    same, other = copy.deepcopy(model), copy.deepcopy(model)
    other.bn.running_mean[0] += 1
    assert Extractor(model).fingerprint == Extractor(same).fingerprint
    assert len(Extractor(model).fingerprint) == 64
    prints = {
        Extractor(model, **s).fingerprint for s in ({}, {"layers": "stages"}, {"layers": ("conv",)}, {"head": False})
    }
    prints |= {Extractor(other).fingerprint, Extractor(model, head=(torch.ones(5, 12), None)).fingerprint}
    assert len(prints) == 6
    extractor = Extractor(model)
    before = extractor.fingerprint
    model.train()
    extractor(images())
    assert extractor.fingerprint == before
