"""ODIN: against gradients derived by hand; and what every energy of inputs does with models and data."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import HEAT, Energy, Extractor, Features, create, evaluate, methods
from heat_ood.energies import ODIN, Composition, FreeEnergy, InputEnergy
from heat_ood.errors import InputError, NotFittedError

WITHOUT = "ODIN scores stored features without the input perturbation"


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Linear(nn.Module):
    """Images, flattened, times a matrix."""

    def __init__(self, classes: int = 4, width: int = 12) -> None:
        super().__init__()
        self.head = nn.Linear(width, classes).double()
        self.head.weight.data, self.head.bias.data = randn(classes, width, seed=1), randn(classes, seed=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


def network() -> nn.Sequential:
    """Everything that a frozen pass must leave alone: batch norm, dropout, a layer that writes into its input."""
    torch.manual_seed(0)
    first = (nn.ReLU(inplace=True), nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3))


def images(n: int = 12, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def expected_energy(logits: np.ndarray[Any, Any], temperature: float) -> list[float]:
    """The log-odds against the top class, times T, less what they are where all logits are equal."""
    found = []
    for f in logits / temperature:
        others = np.delete(f, f.argmax())
        found.append(temperature * (logsumexp(others) - f.max() - np.log(len(others))))
    return found


# The formula


@pytest.mark.parametrize("temperature", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.0014, 0.3])
@pytest.mark.parametrize("std", [None, (0.5,), (0.2, 0.5, 2.0)])
def test_a_linear_softmax_model_has_a_gradient_in_closed_form(
    temperature: float, epsilon: float, std: tuple[float, ...] | None
) -> None:
    model, x = Linear(), randn(30, 3, 2, 2)
    W, b = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    moved = []
    for image in x.numpy():
        f = W @ image.ravel() + b
        gradient = (W[f.argmax()] - softmax(f / temperature) @ W) / temperature
        step = epsilon / np.broadcast_to(np.reshape(std or (1.0,), (-1, 1, 1)), image.shape).ravel()
        moved.append(W @ (image.ravel() - step * np.sign(-gradient)) + b)
    odin = ODIN(temperature, epsilon, std).attach(model).fit(x)
    np.testing.assert_allclose(odin.score(x), expected_energy(np.array(moved), temperature), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_a_network_of_two_layers_against_backpropagation_by_hand(temperature: float) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    for seed, p in enumerate(model.parameters()):
        p.data = randn(*p.shape, seed=seed)
    W, b, V, c = (p.detach().numpy() for p in model.parameters())
    x, moved = randn(20, 5, seed=9), []
    for row in x.numpy():
        h = np.tanh(W @ row + b)
        f = V @ h + c
        by_logits = np.eye(3)[f.argmax()] - softmax(f / temperature)
        gradient = W.T @ ((1 - h**2) * (V.T @ by_logits)) / temperature
        moved.append(V @ np.tanh(W @ (row - 0.05 * np.sign(-gradient)) + b) + c)
    found = ODIN(temperature, 0.05).attach(model).score(x)
    np.testing.assert_allclose(found, expected_energy(np.array(moved), temperature), rtol=1e-9)


def test_by_hand() -> None:
    """The top class's logit rises by the step of 0.25 and the others fall by it: (2, 0.5, 0) to (2.25, 0.25, -0.25)."""
    model = nn.Linear(3, 3, bias=False).double()
    model.weight.data = torch.eye(3, dtype=torch.float64)
    score = ODIN(temperature=2.0, epsilon=0.25).attach(model).score(torch.tensor([[2.0, 0.5, 0.0]]).double())
    assert score.item() == pytest.approx(
        2 * math.log((math.exp((0.25 - 2.25) / 2) + math.exp((-0.25 - 2.25) / 2)) / 2), rel=1e-12
    )


@pytest.mark.parametrize("temperature", [1.0, 10.0, 1000.0])
def test_ranks_as_the_largest_probability(temperature: float) -> None:
    logits = randn(300, 10)
    confidence = softmax(logits.numpy() / temperature, axis=1).max(1)
    score = ODIN(temperature).of_logits(logits).numpy()
    assert (np.argsort(-confidence) == np.argsort(score)).all()


def test_keeps_what_probabilities_lose_at_a_high_temperature() -> None:
    logits = torch.zeros(200, 10)
    logits[:, 0] = torch.linspace(1, 1.01, 200)
    assert len(torch.unique((logits / 1000).softmax(1).amax(1))) < 100, "probabilities fall together"
    assert (ODIN().of_logits(logits).diff() < 0).all()


def test_the_step_raises_the_confidence() -> None:
    x = images(20)
    before, after = (ODIN(epsilon=e).attach(network()).score(x) for e in (0.0, 1e-3))
    assert (after < before).all()


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e6])
@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_extremes_are_finite(scale: float, classes: int, temperature: float) -> None:
    model, x = Linear(classes).float(), (scale * randn(6, 3, 2, 2)).float()
    score = ODIN(temperature).attach(model).score(x)
    assert torch.isfinite(score).all()
    assert classes > 1 or (score == 0).all()


# The model is left alone


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("out of memory")
        return self.net(x)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_model_changes(fails: bool) -> None:
    model = Failing()
    model.net[2].eval()
    model.net[1].weight.requires_grad_(False)
    x = images() - 0.5
    given, state = x.clone(), {k: v.clone() for k, v in model.state_dict().items()}
    modes, flags = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    model.calls = 0 if fails else 2
    torch.manual_seed(3)
    random = torch.get_rng_state()
    odin = ODIN().attach(model)
    if fails:
        with pytest.raises(RuntimeError, match="out of memory"):
            odin.score(x)
    else:
        odin.score(x)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, given)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_model_is_outside_of_the_module_tree() -> None:
    model = network()
    odin = ODIN().attach(model)
    assert list(odin.modules()) == [odin]
    assert not odin.state_dict()
    odin.double()
    assert model[1].weight.dtype == torch.float32


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_gradients_are_found_whatever_the_caller_has_switched_off(mode: Any) -> None:
    odin, x = ODIN().attach(network()), images()
    with mode():
        found = odin.score(x.clone())
    assert torch.equal(found, odin.score(x))
    assert not found.requires_grad


# Data


def as_dictionaries(x: Tensor) -> list[dict[str, Tensor]]:
    return [{"input": part, "label": torch.zeros(len(part)).long()} for part in x.split(5)]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x.numpy(),
        lambda x: DataLoader(TensorDataset(x), batch_size=5),
        lambda x: DataLoader(TensorDataset(x, torch.arange(len(x))), batch_size=7),
        lambda x: list(x.split(4)),
        lambda x: iter(x.split(4)),
        lambda x: (x, torch.arange(len(x))),
        lambda x: {"images": x},
        as_dictionaries,
    ],
)
def test_any_loader_will_do(wrap: Any) -> None:
    x = images()
    odin = ODIN(epsilon=0.01).attach(network())
    torch.testing.assert_close(torch.as_tensor(odin.score(wrap(x))), odin.score(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TensorDataset(images()), "Pass a loader"),
        ("images/", "Pass a loader"),
        (7, "Pass a loader"),
        ([], "yields no batches"),
        (DataLoader(TensorDataset(images()), shuffle=True), "shuffles"),
        (Features(avg=randn(3, 4)), "there are none in Features"),
    ],
)
def test_data_that_will_not_do(data: Any, message: str) -> None:
    odin = ODIN().attach(network())
    for action in (odin.fit, odin.score, odin.calibrate):
        with pytest.raises(InputError, match=message):
            action(data)


def test_a_fit_reads_one_batch() -> None:
    batches = iter(images().split(5))
    ODIN().attach(network()).fit(batches)
    assert len(list(batches)) == 2


def test_no_samples_have_no_scores() -> None:
    assert ODIN().attach(network()).score(images()[:0]).shape == (0,)
    with pytest.raises(InputError, match="at least one sample"):
        ODIN().attach(network()).calibrate(images()[:0])


def test_a_sample_that_is_not_finite_is_named() -> None:
    x = images()
    x[7] = torch.nan
    with pytest.raises(InputError, match=r"1 samples of a batch have no finite score, the first is sample 7\."):
        ODIN().attach(network()).score(list(x.split(5)))


class Blind(nn.Module):
    """A backbone that stops gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            z = self.net[:-1](x)
        return self.net[-1](z)


def test_without_a_gradient_it_says_so() -> None:
    with pytest.raises(InputError, match=r"no gradient of the logits reaches them.*epsilon=0"):
        ODIN().attach(Blind()).fit(images())
    with pytest.raises(InputError, match="no gradient of the logits reaches them"):
        ODIN().attach(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))).score(torch.ones(5, 2).long())
    assert torch.isfinite(ODIN(epsilon=0).attach(Blind()).score(images())).all()


class Several(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.net, self.form = network(), form

    def forward(self, x: Tensor) -> Any:
        logits = self.net(x)
        forms = {
            "dict": {"features": x, "logits": logits},
            "tuple": (x, logits),
            "object": type("Output", (), {"logits": logits})(),
            "maps": logits[:, :, None, None],
        }
        return forms[self.form]


@pytest.mark.parametrize("form", ["dict", "tuple", "object", "maps"])
def test_logits_are_found_among_the_outputs(form: str) -> None:
    assert torch.equal(ODIN().attach(Several(form)).score(images()), ODIN().attach(network()).score(images()))


def test_a_model_without_logits() -> None:
    with pytest.raises(InputError, match="returns no logits"):
        ODIN().attach(nn.Flatten(0)).score(images())


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": math.inf}, "temperature must be positive"),
        ({"epsilon": -1.0}, "epsilon is the size of a step"),
        ({"epsilon": math.nan}, "epsilon is the size of a step"),
        ({"std": (0.2, 0.0, 0.2)}, "std is one positive number a channel"),
        ({"std": ()}, "std is one positive number a channel"),
        ({"std": "rgb"}, "std is one positive number a channel"),
        ({"std": 0.2}, "std is one positive number a channel"),
        ({"std": (0.2, 0.2)}, r"std has 2 numbers for inputs of shape \(12, 3, 8, 8\)"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ODIN(**settings).attach(network()).fit(images())


def test_settings_and_repr() -> None:
    assert create("odin", epsilon=0.1).settings == {"temperature": 1000.0, "epsilon": 0.1, "std": None}
    assert repr(ODIN()) == "ODIN(temperature=1000.0, epsilon=0.0014, std=None)  # fitted"
    assert methods()["odin"] == ODIN().reads == ("inputs",)


# Models


def test_before_a_model_is_attached() -> None:
    for action in (ODIN().fit, ODIN().score, ODIN().calibrate):
        with pytest.raises(NotFittedError, match=r"no model is attached\. Call \.attach\(model\)"):
            action(images())
    with pytest.raises(InputError, match="reads one model, not 2"):
        ODIN().attach(network(), network())
    with pytest.raises(InputError, match=r"needs an nn\.Module"):
        ODIN().attach("resnet")  # type: ignore[arg-type]


def test_another_model_is_refused() -> None:
    model, other = network(), network()
    other[-1].bias.data += 1
    odin = ODIN().attach(model).fit(images())
    with pytest.raises(InputError, match="fitted with another model"):
        odin.attach(other)
    odin.attach(Extractor(network()))
    with torch.no_grad():
        model[-1].bias += 1
    with pytest.raises(InputError, match="fitted with another model"):
        ODIN().attach(network()).fit(images()).attach(model)


def test_a_model_that_is_trained_further_is_noticed() -> None:
    model = network()
    odin = ODIN().attach(model).fit(images())
    with torch.no_grad():
        model[-1].bias += 1
    with pytest.raises(InputError, match="fitted with another model"):
        odin.score(images())
    odin.fit(images()).score(images())


def test_save_and_load(tmp_path: Path) -> None:
    odin = ODIN(temperature=10.0, std=(0.2, 0.3, 0.4)).attach(network()).fit(images()).calibrate(images(40, 1))
    odin.save(tmp_path / "odin")
    loaded = ODIN.load(tmp_path / "odin")
    with pytest.raises(NotFittedError, match=r"with the one that it was fitted with; models are not saved"):
        loaded.score(images())
    other = network()
    other[-1].bias.data += 1
    with pytest.raises(InputError, match="fitted with another model"):
        loaded.attach(other)
    loaded.attach(network())
    assert torch.equal(loaded.score(images()), odin.score(images()))
    assert torch.equal(loaded.p_value(images()), odin.p_value(images()))
    assert loaded.settings == odin.settings


def test_calibrated_without_a_fit_it_knows_its_model_too(tmp_path: Path) -> None:
    ODIN().attach(network()).calibrate(images()).save(tmp_path / "odin")
    other = network()
    other[-1].bias.data += 1
    with pytest.raises(InputError, match="fitted with another model"):
        ODIN.load(tmp_path / "odin").attach(other)


# Calibration


def test_p_values_and_decisions() -> None:
    odin, held, x = ODIN().attach(network()).fit(images()), images(50, 1), 3 * images(20, 2)
    with pytest.raises(NotFittedError, match="has not been calibrated"):
        odin.predict(x)
    odin.calibrate(held)
    known, scores = odin.score(held), odin.score(x)
    expected = [(1 + int((known >= s).sum())) / 51 for s in scores]
    assert odin.p_value(x).tolist() == pytest.approx(expected)
    assert odin.predict(list(x.split(7)), fpr=0.2).tolist() == [p <= 0.2 for p in expected]
    assert not odin.fit(held).calibrated


def test_calibration_within_the_predicted_class() -> None:
    model, held, x = Linear(3), randn(200, 3, 2, 2), randn(40, 3, 2, 2, seed=5)
    odin = ODIN(epsilon=0.3).attach(model).calibrate(held, per_class=True)
    known, scores = odin.score(held), odin.score(x)
    with torch.no_grad():
        classes, own = model(held).argmax(1), model(x).argmax(1)
    expected = [
        (1 + int((known[classes == c] >= s).sum())) / (1 + int((classes == c).sum()))
        for s, c in zip(scores, own, strict=True)
    ]
    assert odin.p_value(x).tolist() == pytest.approx(expected)
    with pytest.raises(InputError, match=r"No calibration sample is predicted as class .*per_class=False"):
        odin.calibrate(held[:1], per_class=True)


# Features instead of inputs


def test_features_are_scored_without_the_step_and_that_is_said_once() -> None:
    model, x = network(), images()
    features = Extractor(model)(x)
    odin = ODIN(temperature=10.0)
    with pytest.warns(UserWarning, match=WITHOUT):
        odin.fit(features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = odin.calibrate(features).score(features)
        odin.predict(features, fpr=0.1)
    assert features.logits is not None
    np.testing.assert_allclose(found, expected_energy(features.logits.double().numpy(), 10.0), rtol=1e-5)
    torch.testing.assert_close(found, ODIN(10.0, epsilon=0).attach(model).score(x), rtol=1e-5, atol=1e-6)


def test_features_of_another_model_are_refused() -> None:
    other = network()
    other[-1].bias.data += 1
    with pytest.warns(UserWarning, match=WITHOUT):
        odin = ODIN().fit(Extractor(network())(images()))
    with pytest.raises(InputError, match="two different models"):
        odin.score(Extractor(other)(images()))
    with pytest.raises(InputError, match="fitted with another model"):
        odin.attach(other)
    with pytest.raises(InputError, match="no samples at all"):
        ODIN().fit(Extractor(network())(images())[:0])


@pytest.mark.filterwarnings(f"ignore:{WITHOUT}")
@pytest.mark.parametrize("on_features", [False, True])
def test_a_calibration_with_the_step_does_not_judge_scores_without(tmp_path: Path, on_features: bool) -> None:
    model, x = network(), images()
    kinds: list[Any] = [x, Extractor(model)(x)]
    if on_features:
        kinds.reverse()
    odin = ODIN().attach(model).calibrate(kinds[0])
    odin.save(tmp_path / "odin")
    for energy in (odin, ODIN.load(tmp_path / "odin").attach(model)):
        energy.predict(kinds[0], fpr=0.5)
        with pytest.raises(InputError, match=r"calibrated with(out)? the input perturbation.*or calibrate it again"):
            energy.p_value(kinds[1])
        energy.calibrate(kinds[1]).p_value(kinds[1])


@pytest.mark.parametrize("prior", ["odin", ODIN(temperature=10.0)])
def test_in_a_composition_it_acts_on_the_logits(prior: Any, tmp_path: Path) -> None:
    features = Features(avg=randn(60, 4), logits=randn(60, 3, seed=1), labels=torch.arange(60) % 3)
    odin = create("odin") if isinstance(prior, str) else prior
    with pytest.warns(UserWarning, match=WITHOUT):
        both = Composition({"odin": odin, "energy": FreeEnergy()}).fit(features)
    assert both.reads == ("logits",)
    with pytest.warns(UserWarning, match=WITHOUT):
        heat = HEAT(priors=(prior, "energy"), residual=None, holdout=0).fit(features)
    torch.testing.assert_close(heat.score(features), both.score(features))
    heat.save(tmp_path / "heat")
    assert torch.equal(HEAT.load(tmp_path / "heat").score(features), heat.score(features))


def test_a_residual_cannot_correct_it() -> None:
    features = Features(avg=randn(60, 4), logits=randn(60, 3, seed=1), labels=torch.arange(60) % 3)
    with pytest.raises(InputError, match="odin cannot be corrected: its gradient is one of inputs"):
        HEAT(priors=("odin",)).fit(features)


@pytest.mark.filterwarnings(f"ignore:{WITHOUT}")
def test_guarded_it_acts_on_the_logits_unless_calibrated_on_inputs() -> None:
    model, x = network(), images()
    extractor = Extractor(model)
    odin = ODIN().fit(extractor(x)).calibrate(extractor(x))
    assert torch.equal(extractor.guard(odin)(x).score, odin.score(extractor(x)))
    with pytest.raises(InputError, match="odin was calibrated on inputs"):
        extractor.guard(ODIN().attach(model).calibrate(x))


# Evaluation


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: list(x.split(4)), lambda x: DataLoader(TensorDataset(x), 5)])
def test_evaluate(wrap: Any, batch_size: int | None) -> None:
    odin, test, far = ODIN().attach(network()), images(20, 1), 4 * images(15, 2)
    result = evaluate(odin, wrap(test), {"far": wrap(far)}, intervals=False, batch_size=batch_size)
    a, b = odin.score(test), odin.score(far)
    wins = (b[:, None] > a).double().mean() + (b[:, None] == a).double().mean() / 2
    assert result["far"].auroc == pytest.approx(wins.item(), abs=0.005)
    assert (result["far"].n_id, result["far"].n_ood) == (20, 15)


def test_every_energy_of_inputs_says_so() -> None:
    reading = {name for name in methods() if isinstance(create(name), InputEnergy)}
    assert reading == {"odin", "gram", "ensemble"}
    assert {methods()[name] for name in reading} == {("inputs",), ("maps",), ("models",)}
    assert all(issubclass(type(create(name)), Energy) and create(name).no_prior for name in reading)
