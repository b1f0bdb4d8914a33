"""Gram matrices: against plain loops over samples, channels and powers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import HEAT, Extractor, Features, create, evaluate
from heat_ood.energies import Composition, Gram
from heat_ood.energies._gram import gram_rows
from heat_ood.errors import InputError, NotFittedError

Array = np.ndarray[Any, Any]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Net(nn.Module):
    """Two blocks of maps, signed and not, and a head."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one = nn.Conv2d(3, 4, 3, padding=1)
        self.two = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(6, classes)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.two(nn.functional.relu_(self.one(x))).mean((2, 3)))


class Signs(nn.Module):
    """Maps that are the input itself, and a class that its first channel's sign tells."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Identity()
        self.head = nn.Linear(2, 2, bias=False).double()
        self.head.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.maps(x).mean((2, 3)))


# Written from the paper


def sums(maps: Array, powers: int) -> Array:
    """Row sums of F^p F^pᵀ, and then their roots, one after the other."""
    found = []
    for p in range(1, powers + 1):
        for row in maps**p @ (maps**p).T:
            total = sum(row)
            found.append(np.sign(total) * abs(total) ** (1 / p))
    return np.array(found)


def deviation(value: float, low: float, high: float, floor: float) -> float:
    if value < low:
        return (low - value) / max(abs(low), floor)
    if value > high:
        return (value - high) / max(abs(high), floor)
    return 0.0


def reference(train: list[Array], classes: Array, test: list[Array], predicted: Array, powers: int) -> Array:
    """Scores of test samples; ``train`` and ``test`` have (n, channels, positions) a layer."""
    kept = np.arange(len(classes)) % 10 != 9
    total = np.zeros(len(predicted))
    for layer, new in zip(train, test, strict=True):
        rows, others = (np.array([sums(maps, powers) for maps in part]) for part in (layer, new))
        width = layer.shape[1]

        def bounds(c: int, rows: Array = rows) -> tuple[Array, Array]:
            own = rows[kept & (classes == c)]
            own = own if len(own) else rows[kept]
            return own.min(0), own.max(0)

        limits = [bounds(c) for c in range(int(max(classes.max(), predicted.max())) + 1)]
        largest = np.max([np.abs(limit) for pair in limits for limit in pair], axis=0).reshape(powers, width).max(1)
        floors = np.maximum(1e-6 * largest.repeat(width), 1e-12)

        def deviations(rows: Array, classes: Array, limits: Any = limits, floors: Array = floors) -> Array:
            return np.array(
                [sum(map(deviation, row, *limits[c], floors)) for row, c in zip(rows, classes, strict=True)]
            )

        mean = deviations(rows[~kept], classes[~kept]).mean() if (~kept).any() else 0.0
        total += deviations(others, predicted) / (mean or 1.0)
    return total


def layers_of(model: Net, x: Tensor) -> tuple[list[Array], Array]:
    with torch.no_grad():
        one = model.one(x)
        two = model.two(one.relu())
        classes = model.head(two.mean((2, 3))).argmax(1)
    return [one.flatten(2).numpy(), two.flatten(2).numpy()], classes.numpy()


@pytest.mark.parametrize("powers", [1, 3, 10])
@pytest.mark.parametrize("layers", [("one",), ("one", "two")])
@pytest.mark.parametrize("n", [5, 47])
def test_equals_plain_loops(powers: int, layers: Sequence[str], n: int) -> None:
    model, train, test = Net(), randn(n, 3, 5, 5), 1.5 * randn(15, 3, 5, 5, seed=1)
    (maps, classes), (new, predicted) = layers_of(model, train), layers_of(model, test)
    expected = reference(maps[: len(layers)], classes, new[: len(layers)], predicted, powers)
    gram = Gram(layers, powers).attach(model).fit(list(train.split(8)))
    np.testing.assert_allclose(gram.score(test), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("positions", [1, 7])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_rows_of_gram_matrices(positions: int, scale: float) -> None:
    maps = scale * randn(4, 5, positions)
    maps[0, 2] = 0
    maps[1] = 0
    np.testing.assert_allclose(gram_rows(maps, 10), [sums(m, 10) for m in maps.numpy()], rtol=1e-9)


def test_high_powers_neither_overflow_nor_vanish() -> None:
    maps = randn(3, 4, 9).abs() + 0.1
    for scale in (1e-12, 1e-4, 1e6):
        found = gram_rows((scale * maps).float(), 10)
        torch.testing.assert_close(found / scale**2, gram_rows(maps.float(), 10), rtol=1e-4, atol=0)


def test_sums_stand_before_the_root_and_no_matrix_is_made() -> None:
    """Maps (2, 6) of one position: the rows sum to 2 · 8 and 6 · 8; of their squares, to 4 · 40 and 36 · 40."""
    found = gram_rows(torch.tensor([[[2.0], [6.0]]], dtype=torch.float64), 2)
    expected = [2 * 8, 6 * 8, math.sqrt(4 * 40), math.sqrt(36 * 40)]
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_by_hand() -> None:
    """Maps of two channels and one position, power one: the rows of (a, b)(a, b)ᵀ sum to a(a + b) and b(a + b)."""
    train = torch.tensor([[1.0, 1.0], [2.0, 1.0], [-1.0, 2.0]]).double()[:, :, None, None]
    gram = Gram("maps", powers=1).attach(Signs()).fit(train)
    assert gram.low.tolist() == [[2.0, 2.0], [-1.0, 2.0]]
    assert gram.high.tolist() == [[6.0, 3.0], [-1.0, 2.0]]
    assert gram.scale.tolist() == [1.0], "nothing is held out of three samples"
    # (3, 1) has the sums 12 and 4: (12 - 6) / 6 + (4 - 3) / 3; (1, 0) has 1 and 0: (2 - 1) / 2 + (2 - 0) / 2;
    # (-2, 1) is of the other class and has 2 and -1: (2 + 1) / 1 + (2 + 1) / 2; (2, 1) was there
    new = torch.tensor([[3.0, 1.0], [1.0, 0.0], [-2.0, 1.0], [2.0, 1.0]]).double()[:, :, None, None]
    assert gram.score(new).tolist() == pytest.approx([4 / 3, 3 / 2, 9 / 2, 0.0])


def test_layers_are_divided_by_their_deviation_on_every_tenth_sample() -> None:
    train = torch.ones(20, 2, 1, 1).double()
    train[9], train[19] = torch.tensor([2.0, 1.0])[:, None, None], torch.ones(2, 1, 1)
    # bounds (2, 2); the held-out (2, 1) has the sums 6 and 3, (1, 1) was there: deviations 2 + 1/2 and 0
    gram = Gram("maps", powers=1).attach(Signs()).fit(list(train.split(7)))
    assert gram.scale.tolist() == [1.25]
    assert gram.score(train[9:10]).tolist() == pytest.approx([2.0])


# Classes


def test_bounds_are_those_of_the_predicted_class() -> None:
    x = randn(60, 2, 2, 2)
    gram = Gram("maps", powers=2).attach(Signs()).fit(x)
    classes = (x[:, 0].mean((1, 2)) < 0).long()
    kept = torch.arange(60) % 10 != 9
    for c in (0, 1):
        rows = gram_rows(x[kept & (classes == c)].flatten(2), 2)
        torch.testing.assert_close(gram.low[c], rows.amin(0), rtol=1e-12, atol=0)
        torch.testing.assert_close(gram.high[c], rows.amax(0), rtol=1e-12, atol=0)
    assert (gram.score(x[kept]) == 0).all()
    assert (gram.low[0] != gram.low[1]).all()


def test_a_class_that_is_never_predicted_has_the_bounds_of_all() -> None:
    model, x = Net(classes=5), randn(30, 3, 5, 5)
    model.head.bias.data[4] = -1e3
    gram = Gram("two").attach(model).fit(x)
    assert torch.equal(gram.low[4], gram.low[:4].amin(0))
    assert torch.equal(gram.high[4], gram.high[:4].amax(0))
    assert torch.isfinite(gram.low).all()


@pytest.mark.parametrize("head", [None, False])
def test_a_model_without_a_head_has_one_class(head: bool | None) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if head is None:
        model.append(nn.Linear(4, 2))
    gram = Gram("1").attach(Extractor(model, head=head)).fit(torch.rand(30, 3, 6, 6))
    assert len(gram.low) == (1 if head is False else 2)
    assert torch.isfinite(gram.score(torch.rand(4, 3, 6, 6))).all()
    if head is False:
        gram.calibrate(torch.rand(20, 3, 6, 6)).p_value(torch.rand(4, 3, 6, 6))
        with pytest.raises(InputError, match="needs logits, and the model has none"):
            gram.calibrate(torch.rand(20, 3, 6, 6), per_class=True)


# Edge cases


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e6])
@pytest.mark.parametrize("fitted_on", [0.0, 1.0])
def test_extremes_are_finite(scale: float, fitted_on: float) -> None:
    model = Net().float()
    for conv in (model.one, model.two[0]):
        conv.bias.data.zero_()
    gram = Gram(("one", "two")).attach(model).fit(fitted_on * randn(30, 3, 5, 5).float())
    assert torch.isfinite(gram.score(scale * randn(5, 3, 5, 5, seed=1).float())).all()


@pytest.mark.parametrize("n", [1, 9, 10])
def test_few_samples(n: int) -> None:
    gram = Gram("one").attach(Net()).fit(randn(n, 3, 5, 5))
    assert (gram.scale > 0).all()
    assert (gram.score(randn(n, 3, 5, 5)[:9]) == 0).all()
    assert (gram.score(5 + randn(3, 3, 5, 5, seed=1)) > 0).all()


def test_a_dead_channel_that_wakes_up_counts() -> None:
    model, x = Net(), randn(40, 3, 5, 5)
    model.two[0].weight.data[2], model.two[0].bias.data[2] = 0, -1
    gram = Gram("two").attach(model).fit(x)
    before = gram.score(x).max()
    model.two[0].bias.data[2] = 1
    other = Gram("two").attach(model)
    other.widths_ = gram.widths_
    for name, buffer in gram.named_buffers():
        setattr(other, name, buffer)
    assert other.score(x).min() > 1e3 * before.clamp(min=1)


def test_the_scale_of_the_maps_does_not_matter() -> None:
    model, x, new = Signs(), randn(40, 2, 2, 2), 2 * randn(9, 2, 2, 2, seed=1)
    small, large = (Gram("maps").attach(model).fit(s * x).score(s * new) for s in (1e-2, 1e2))
    torch.testing.assert_close(small, large, rtol=1e-9, atol=0)


# Models and data


def test_stages_are_the_default_and_names_do_as_well() -> None:
    blocks = [nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU()) for a, b in ((3, 4), (4, 6), (6, 8))]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    x = torch.rand(30, 3, 16, 16)
    stages = Gram().attach(model).fit(x)
    assert stages.widths_ == {"1": 6, "2": 8}, "the first is a stem"
    named = Gram(("1", "2")).attach(Extractor(model)).fit(x)
    assert torch.equal(stages.score(x), named.score(x))


def test_tokens_give_their_patches_and_vectors_one_position() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cls = nn.Parameter(torch.randn(1, 1, 8))
            self.embed, self.block = (
                nn.Conv2d(3, 8, 4, stride=4),
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            )
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            patches = self.embed(x).flatten(2).transpose(1, 2)
            return self.head(self.block(torch.cat([self.cls.expand(len(x), -1, -1), patches], 1))[:, 0])

    model, x = Tokens(), torch.rand(4, 3, 8, 8)
    extractor = Extractor(model, layers=("block", "head"))
    logits, maps = extractor.maps(x)
    assert {name: tuple(part.shape) for name, part in maps.items()} == {"block": (4, 8, 4), "head": (4, 3, 1)}
    torch.testing.assert_close(maps["head"][:, :, 0], logits)
    pooled = extractor(x).layers["block"]
    torch.testing.assert_close(maps["block"].mean(2), pooled.avg)
    torch.testing.assert_close(maps["block"].std(2, correction=0), pooled.std)


def test_maps_are_what_the_module_returned_even_if_it_is_overwritten() -> None:
    model, x = Net(), randn(4, 3, 5, 5)
    logits, maps = Extractor(model, layers=("one", "two")).maps(x)
    (one, two), classes = layers_of(model, x)
    assert (maps["one"] < 0).any()
    np.testing.assert_allclose(maps["one"], one)
    np.testing.assert_allclose(maps["two"], two)
    assert logits.argmax(1).tolist() == classes.tolist()


def test_the_model_is_left_alone_even_if_it_fails() -> None:
    model, x = Net(), randn(20, 3, 5, 5)
    model.two.eval()
    modes, state = [m.training for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}
    gram = Gram("one").attach(model).fit(x)
    with pytest.raises(RuntimeError):
        gram.score(randn(2, 7, 5, 5))
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())


def test_a_fit_goes_twice_over_the_data_and_a_score_once() -> None:
    x = randn(25, 3, 5, 5)
    with pytest.raises(InputError, match=r"twice over the data, and a generator can be used only once\. Pass a Data"):
        Gram("one").attach(Net()).fit(iter(x.split(5)))
    gram = Gram("one").attach(Net()).fit(DataLoader(TensorDataset(x, torch.arange(25)), batch_size=4))
    torch.testing.assert_close(gram.score(iter(x.split(5))), gram.score(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"powers": 0}, "powers is how many powers there are"),
        ({"powers": 2.5}, "powers is how many powers there are"),
        ({"powers": True}, "powers is how many powers there are"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Gram("one", **settings).attach(Net()).fit(randn(9, 3, 5, 5))


def test_layers_are_checked() -> None:
    with pytest.raises(InputError, match="no layer 'three'"):
        Gram("three").attach(Net())
    with pytest.raises(InputError, match="at least one layer"):
        Gram(()).attach(Net()).fit(randn(9, 3, 5, 5))


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match="no samples at all"):
        Gram("one").attach(Net()).fit(randn(0, 3, 5, 5))
    x = randn(9, 3, 5, 5)
    x[3] = torch.nan
    with pytest.raises(InputError, match="maps of some samples are not finite"):
        Gram("one").attach(Net()).fit(x)
    with pytest.raises(NotFittedError, match="no model is attached"):
        Gram("one").fit(randn(9, 3, 5, 5))
    with pytest.raises(NotFittedError, match=r"has not been fitted\. Call \.attach\(model\)\.fit\(loader\)"):
        Gram("one").attach(Net()).score(randn(9, 3, 5, 5))


def test_stored_features_will_not_do() -> None:
    features = Features(avg=randn(60, 4), logits=randn(60, 3, seed=1))
    gram = Gram("one").attach(Net()).fit(randn(20, 3, 5, 5))
    told = r"gram reads maps, which stored features do not hold\. Score it alone, on a loader"
    for action in (gram.fit, gram.score, gram.calibrate, gram.energy, Gram().fit):
        with pytest.raises(InputError, match=told):
            action(features)
    for energy in (gram, Gram()):
        with pytest.raises(InputError, match=told):
            Composition({"gram": energy, "msp": create("msp")}).fit(features)
    for residual in (None, {}):
        with pytest.raises(InputError, match=told):
            HEAT(priors=("energy", "gram"), residual=residual).fit(features)
    with pytest.raises(InputError, match=told):
        Extractor(Net()).guard(gram)


def test_save_and_load(tmp_path: Path) -> None:
    model, x = Net(), randn(40, 3, 5, 5)
    gram = Gram(["one", "two"], powers=4).attach(model).fit(x).calibrate(x[:15], per_class=False)
    gram.save(tmp_path / "gram")
    loaded = Gram.load(tmp_path / "gram")
    with pytest.raises(NotFittedError, match="models are not saved"):
        loaded.score(x)
    other = Net()
    other.head.bias.data += 1
    with pytest.raises(InputError, match="fitted with another model"):
        loaded.attach(other)
    loaded.attach(Net())
    assert torch.equal(loaded.score(2 * x), gram.score(2 * x))
    assert torch.equal(loaded.p_value(2 * x), gram.p_value(2 * x))
    assert loaded.settings == {"layers": ["one", "two"], "powers": 4}
    assert repr(loaded) == "Gram(layers=['one', 'two'], powers=4)  # fitted, calibrated"
    assert create("gram").settings == {"layers": "stages", "powers": 10}


@pytest.mark.parametrize(
    "damage",
    [
        lambda g: setattr(g, "low", g.low[:, 1:]),
        lambda g: setattr(g, "low", g.high + 1),
        lambda g: setattr(g, "floor", -g.floor),
        lambda g: setattr(g, "scale", g.scale.repeat(2)),
        lambda g: setattr(g, "high", g.high.float()),
        lambda g: setattr(g, "widths_", {"one": 5}),
        lambda g: setattr(g, "widths_", {}),
        lambda g: setattr(g, "powers", 3),
    ],
)
def test_state_that_does_not_fit_together_is_refused(damage: Any) -> None:
    gram = Gram("one", powers=2).attach(Net()).fit(randn(20, 3, 5, 5))
    gram.validate()
    damage(gram)
    with pytest.raises(InputError):
        gram.validate()


def test_evaluate() -> None:
    x = randn(60, 3, 5, 5)
    gram = Gram("two").attach(Net()).fit(x)
    sets = {"far": list((3 * randn(20, 3, 5, 5, seed=3)).split(6))}
    result = evaluate(gram, DataLoader(TensorDataset(randn(30, 3, 5, 5, seed=2)), batch_size=7), sets, intervals=False)
    assert result["far"].auroc > 0.9
    assert (result["far"].n_id, result["far"].n_ood) == (30, 20)
