"""Many threads on one guard: every answer is the one that a single thread gets, and the models stay as they were."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heat_ood import HEAT, Extractor
from heat_ood.errors import ModelError
from heat_ood.features import Features, Guard
from heat_ood.features._double import HELD, Double, Original

THREADS, CALLS = 8, 25


@pytest.fixture(autouse=True)
def _switch_often() -> Any:
    """Threads take turns a thousand times as often as usual, so that a race shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def stem() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))


class Conv(nn.Module):
    """Maps, BatchNorm, dropout; inputs with a row that is not finite raise."""

    def __init__(self, first: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = stem() if first is None else first
        self.body = nn.Sequential(nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Dropout2d(0.5))
        self.pool, self.final = nn.AdaptiveAvgPool2d(1), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 100:
            raise RuntimeError("boom")
        out: Tensor = self.final(self.pool(self.body(self.stem(x))).flatten(1))
        return out


class Functional(Conv):
    """The head and the pooling are plain calls, so that every call must be looked at."""

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 100:
            raise RuntimeError("boom")
        z = self.body(self.stem(x)).mean((2, 3))
        return nn.functional.linear(z, self.final.weight * 1.0, self.final.bias)


class Reaching(Conv):
    """It reaches a part of itself by a way that no double knows."""

    def __init__(self) -> None:
        super().__init__()
        self.reach = lambda x, body=self.body: body(x)

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 100:
            raise RuntimeError("boom")
        out: Tensor = self.final(self.pool(self.reach(self.stem(x))).flatten(1))
        return out


class Tokens(nn.Module):
    """A small transformer with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.blocks = nn.Sequential(*(copy.deepcopy(layer) for _ in range(4)))
        self.norm, self.final = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 100:
            raise RuntimeError("boom")
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
        out: Tensor = self.final(self.norm(self.blocks(tokens))[:, 0])
        return out


def compiled() -> Any:
    return torch.compile(Conv(), backend="eager")


KINDS: dict[str, tuple[Callable[[], Any], tuple[str, ...] | None]] = {
    "conv": (Conv, ("stem", "body.0")),
    "last layer": (Conv, None),
    "functional": (Functional, ("stem",)),
    "reaching": (Reaching, ("stem",)),
    "tokens": (Tokens, ("blocks.1", "blocks.3")),
    "compiled": (compiled, ("stem",)),
}


def guard_of(model: nn.Module, layers: tuple[str, ...] | None) -> Guard:
    extractor = Extractor(model, layers)
    generator = torch.Generator().manual_seed(1)
    loader = [(torch.rand(60, 3, 12, 12, generator=generator), torch.arange(60) % 4) for _ in range(3)]
    features = extractor.extract(loader, progress=False)
    detector = HEAT(residual=None).fit(features[:120], progress=False)
    return extractor.guard(detector.calibrate(features[120:]))


def state_of(model: nn.Module) -> Any:
    tensors = {k: v.clone() for k, v in model.state_dict().items()}
    return tensors, [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]


def assert_untouched(before: Any, model: nn.Module) -> None:
    tensors, rest = state_of(model)
    assert rest == before[1]
    assert all(torch.equal(value, before[0][key]) for key, value in tensors.items())


def attack(guards: list[Guard], threads: int, calls: int) -> None:
    """Each thread calls guards with batches of its own; one call in five raises."""
    batches = [torch.rand(n, 3, 12, 12, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 3, 5)]
    expected = [[guard(x) for x in batches] for guard in guards]
    start = threading.Barrier(threads)

    def run(number: int) -> int:
        start.wait()
        for i in range(calls):
            which, n = (number + i) % len(guards), (number * 7 + i) % len(batches)
            if (number + i) % 5 == 0:
                with pytest.raises(ModelError, match="boom"):
                    guards[which](batches[n] * 1000)
            for one, other in zip(guards[which](batches[n]), expected[which][n], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        return calls

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(run, range(threads))) == threads * calls


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_right(kind: str, training: bool) -> None:
    torch.manual_seed(0)
    make, layers = KINDS[kind]
    model = make().train(training)
    guard = guard_of(model, layers)
    before, state = state_of(model), torch.get_rng_state()
    attack([guard], THREADS, CALLS)
    assert_untouched(before, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not HELD


@pytest.mark.parametrize("training", [False, True])
def test_models_that_share_layers(training: bool) -> None:
    torch.manual_seed(0)
    shared = stem()
    models: list[nn.Module] = [Conv(shared), Conv(shared), Reaching()]
    models[2].stem = shared  # type: ignore[assignment]
    for model in models:
        model.train(training)
    guards = [guard_of(model, ("stem",)) for model in models]
    before = [state_of(model) for model in models]
    attack(guards, THREADS, CALLS)
    for state, model in zip(before, models, strict=True):
        assert_untouched(state, model)


def test_threads_that_begin_together_find_the_flow_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    found, recorded = list[int](), Extractor.recorded
    monkeypatch.setattr(Extractor, "recorded", lambda *a: found.append(1) or recorded(*a))
    extractor, x = Extractor(Conv(), ("stem",)), torch.rand(2, 3, 12, 12)
    with ThreadPoolExecutor(THREADS) as pool:
        features = list(pool.map(lambda _: extractor(x), range(THREADS)))
    assert len(found) == 1
    assert all(torch.equal(f.avg, features[0].avg) for f in features)


# The double


@pytest.mark.parametrize(("kind", "stage"), [("conv", Double), ("tokens", Double), ("reaching", Original)])
def test_a_double_stands_for_a_model_where_it_can(kind: str, stage: type) -> None:
    make, layers = KINDS[kind]
    extractor = Extractor(make(), layers)
    extractor(torch.rand(2, 3, 12, 12))
    assert type(extractor._tracker._flow.stage) is stage


@pytest.mark.parametrize("change", ["attribute", "module", "parameter", "moved", "hook", "mode", "loaded"])
def test_what_changes_in_the_model_is_seen(change: str) -> None:
    torch.manual_seed(0)
    model, x = Conv().eval(), torch.rand(2, 3, 12, 12)
    extractor = Extractor(model, ("stem",))
    extractor(x)
    if change == "attribute":
        model.body[0].padding = (1, 1)
    elif change == "module":
        model.body[0] = nn.Conv2d(8, 12, 5)
    elif change == "parameter":
        model.final.weight = nn.Parameter(torch.randn(4, 12))
    elif change == "moved":
        model.double()
        x = x.double()
    elif change == "hook":
        model.body[0].register_forward_hook(lambda _m, _i, output: output * 2)
    elif change == "loaded":
        model.load_state_dict(Conv().state_dict(), assign=True)
    model.train(change == "mode")
    found = extractor(x)
    model.eval()
    with torch.no_grad():
        maps = model.body(model.stem(x))
        torch.testing.assert_close(found.avg, maps.mean((2, 3)))
        torch.testing.assert_close(found.logits, model(x))


def test_an_extractor_and_a_guard_can_be_copied_and_pickled() -> None:
    torch.manual_seed(0)
    guard = guard_of(Conv(), ("stem",))
    x = torch.rand(2, 3, 12, 12)
    expected = guard(x)
    for other in (copy.deepcopy(guard), pickle.loads(pickle.dumps(guard))):
        assert torch.equal(other(x).score, expected.score)
        assert other.model is other.extractor.model


# Changes of the weights


@pytest.mark.parametrize("way", ["data", "numpy", "one tensor"])
def test_weights_that_change_unseen_by_torch_are_noticed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from heat_ood.features import _weights

    torch.manual_seed(0)
    model = Conv()
    guard, x = guard_of(model, ("stem",)), torch.rand(2, 3, 12, 12)
    guard(x)
    if way == "data":
        for parameter in model.parameters():
            parameter.data.mul_(3)
    elif way == "numpy":
        for parameter in model.parameters():
            parameter.detach().numpy()[:] *= 3
    else:
        monkeypatch.setattr(_weights, "INTERVAL", 0.0)
        model.stem[0].weight.data.mul_(3)
    with pytest.raises(ValueError, match="not the one"):
        guard(x)


def test_a_single_number_is_found_when_asked_for() -> None:
    torch.manual_seed(0)
    guard = guard_of(model := Conv(), None)
    guard.verify()
    with torch.no_grad():
        model.body[0].weight.data.view(-1)[101] += 1
    with pytest.raises(ValueError, match="not the one"):
        guard.verify()


# A surrounding autocast


def test_a_surrounding_autocast_changes_nothing() -> None:
    torch.manual_seed(0)
    guard, x = guard_of(Conv(), ("stem",)), torch.rand(3, 3, 12, 12)
    expected, features = guard(x), guard.extractor(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, score = guard(x), guard.detector.score(features)
        again: Features = guard.extractor(x)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(score, expected.score)
    assert torch.equal(again.avg, features.avg)
