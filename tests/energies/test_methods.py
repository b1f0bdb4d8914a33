"""What every method must do, whatever it computes: one test a property, all methods in each."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heat_ood import HEAT, Energy, Features, InputError, NotFittedError, Prior, create, evaluate, methods
from heat_ood.benchmarks import _paper as paper
from heat_ood.energies import Composition, FreeEnergy
from heat_ood.energies._methods import create_prior
from heat_ood.registry import METHODS
from method_data import BEYOND, CASES, PRIORS, QUICK, REFUSED, Case, D, network, samples

pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain

DEFAULT = ("energy", "relative-gmm-joint", "gmm-joint@layer3", "gmm-joint")
"""What HEAT is made of, if the classes support it."""
ON_FEATURES = tuple(name for name in CASES if name not in BEYOND)
each = pytest.mark.parametrize("name", CASES)
on_features = pytest.mark.parametrize("name", ON_FEATURES)
by_itself = pytest.mark.parametrize("name", [name for name in ON_FEATURES if name != "heat"])
"""HEAT does without what is missing, and is a composition already: see tests/test_detector.py."""


@cache
def ready(name: str) -> Any:
    """Fitted and calibrated, once."""
    case = Case(name)
    return case.fitted().calibrate(case.data(100, seed=1))


def trains(name: str) -> bool:
    """Whether it trains a network, which draws other random numbers in another precision."""
    return bool(METHODS[name].make.trains)


def stateless(name: str) -> bool:
    """Whether it learns nothing, and can score at once."""
    return Case(name).create().fitted


def rising(where: str) -> pytest.MarkDecorator:
    """The methods that promise to be high somewhere."""
    return pytest.mark.parametrize("name", [name for name in CASES if where in METHODS[name].make.rises])


def test_none_of_the_papers_methods_is_missing() -> None:
    rows = (name.partition(", ")[0] for name in paper.data()["names"].values())
    printed = {part for row in rows if not row.startswith("HEAT") for part in row.split(" + ")}
    assert printed <= set(methods())
    assert len(printed) >= 16
    assert all(METHODS[name].summary for name in methods())


@each
def test_what_is_learned_can_be_told_from_the_settings(name: str) -> None:
    """A fit changes no argument; what it learns is a buffer, a part, or has a trailing underscore."""
    case = Case(name)
    energy = case.attach(case.create())
    before = {key: repr(value) for key, value in vars(energy).items() if not key.startswith("_")}
    settings = repr(energy.settings)
    energy.fit(case.data())
    assert repr(energy.settings) == settings
    changed = {key for key, value in vars(energy).items() if not key.startswith("_") and before.get(key) != repr(value)}
    assert {key for key in changed if not key.endswith("_")} <= {"fingerprint", "training"}


@on_features
def test_it_is_a_module_of_tensors(name: str) -> None:
    """``energy(avg, …)`` gives the score, and so does the graph that torch.export makes of it, at any batch size."""
    test, few, energy = samples(50, seed=2), samples(7, seed=3), ready(name)
    columns, others = (tuple(f.column(c) for c in energy.reads) for f in (test, few))
    with torch.no_grad():
        assert torch.equal(energy(*columns), energy.score(test))
        dynamic = ({0: torch.export.Dim("batch")},) * len(columns)
        graph = torch.export.export(energy, columns, dynamic_shapes=(dynamic,)).module()
        torch.testing.assert_close(graph(*others), energy.score(few), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BEYOND)
def test_a_method_of_inputs_is_a_module_of_inputs(name: str) -> None:
    test = Case(name).data(20, seed=2)
    torch.testing.assert_close(ready(name)(test), ready(name).score(test), rtol=1e-5, atol=1e-5)


# Scores


@each
@pytest.mark.parametrize("size", [1, 7, 1024])
def test_the_batch_size_does_not_matter(name: str, size: int) -> None:
    test = Case(name).data(50, seed=2)
    torch.testing.assert_close(ready(name).score(test, size), ready(name).score(test, 50), rtol=1e-4, atol=1e-4)


@each
def test_the_order_does_not_matter(name: str) -> None:
    test, order = Case(name).data(60, seed=2), torch.randperm(60, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ready(name).score(test[order]), ready(name).score(test)[order], rtol=1e-4, atol=1e-4)


@each
def test_other_samples_do_not_matter(name: str) -> None:
    test, far = Case(name).data(30, seed=2), Case(name).data(30, seed=3)
    both = Features.concatenate([test, far]) if isinstance(test, Features) else torch.cat([test, far])
    torch.testing.assert_close(ready(name).score(both)[:30], ready(name).score(test), rtol=1e-4, atol=1e-4)


@each
def test_precision_follows_the_data(name: str) -> None:
    case = Case(name)
    single, double = (case.fitted(d).score(case.data(80, 2, d)) for d in (torch.float32, torch.float64))
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert single.shape == double.shape == (80,)
    if not trains(name):
        spread = double.std()
        torch.testing.assert_close(single.double() / spread, double / spread, rtol=2e-3, atol=2e-3)


@each
def test_a_fit_is_repeatable(name: str) -> None:
    case = Case(name)
    state = torch.get_rng_state()
    assert torch.equal(case.fitted().score(case.data(40, seed=2)), ready(name).score(case.data(40, seed=2)))
    assert torch.equal(torch.get_rng_state(), state), "the caller's random state is left alone"


@on_features
@pytest.mark.parametrize("kind", ["zero", "tiny", "large", "one channel", "constant"])
def test_scores_are_finite_on_extreme_features(name: str, kind: str) -> None:
    like = samples(5, seed=2)
    made = {
        "zero": torch.zeros_like,
        "tiny": lambda t: torch.full_like(t, 1e-20),
        "large": lambda t: 1e6 * t,
        "one channel": lambda t: 1e6 * torch.eye(*t.shape),
        "constant": torch.ones_like,
    }[kind]
    odd = Features(
        avg=made(like.avg),
        std=made(like.std),
        head=like.head,
        layers={"layer3": (made(like.layers["layer3"].avg), made(like.layers["layer3"].std))},
    )
    assert torch.isfinite(ready(name).score(odd)).all()


@pytest.mark.parametrize("name", BEYOND)
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e4])
def test_scores_are_finite_on_extreme_images(name: str, scale: float) -> None:
    assert torch.isfinite(ready(name).score(scale * Case(name).data(5, seed=2))).all()


# Cost


class Operations(TorchDispatchMode):
    """How many tensor operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(function: Callable[[Features], object], features: Features) -> int:
    with Operations() as counter:
        function(features)
    return counter.count


@on_features
def test_no_loop_over_samples_or_classes(name: str) -> None:
    """As many operations for ten times the samples of a batch, and for ten times the classes."""
    settings: dict[str, Any] = {"priors": DEFAULT} if name == "heat" else {}
    counts = set()
    for classes in (4, 40):
        train = samples(400, classes=classes)
        energy = Case(name).create(**settings).fit(train)
        counts |= {operations(energy.score, train[:n]) for n in (40, 400)}
        if not trains(name):
            fresh = Case(name).create(**settings)
            few = samples(80, classes=classes)
            fits = {operations(fresh.fit, f) for f in (few, train)}
            assert len(fits) == 1, f"fit: {fits}"
    assert len(counts) == 1, f"score: {counts}"


# Sign


def far() -> Features:
    """ID samples with the silent channels turned on: far away by any distance, normalised or not."""
    test = samples(60, seed=2)
    loud = torch.zeros(D)
    loud[-3:] = 50.0
    layer = test.layers["layer3"]
    return Features(
        avg=test.avg + loud,
        std=test.std + loud,
        head=test.head,
        layers={"layer3": (layer.avg + loud, layer.std + loud)},
    )


def unsure() -> Features:
    """Logits that say nothing, and features without a direction."""
    return Features(avg=torch.zeros(60, D), std=torch.zeros(60, D), logits=torch.zeros(60, 4))


@rising("far")
def test_far_away_is_higher(name: str) -> None:
    assert ready(name).score(far()).min() > ready(name).score(samples(60, seed=2)).max()


@rising("unsure")
@pytest.mark.filterwarnings("ignore:ODIN")
def test_unsure_is_higher(name: str) -> None:
    """A method of inputs is asked on stored logits, where it can do with them."""
    energy = create(name).fit(samples()) if name in BEYOND else ready(name)
    assert energy.score(unsure()).min() > energy.score(samples(60, seed=2)).median()


# Detectors


@each
def test_it_is_a_detector(name: str) -> None:
    case, detector = Case(name), ready(name)
    test = case.data(50, seed=2)
    p = detector.p_value(test)
    held = detector.calibration.limits
    scores = detector.score(case.data(100, seed=1)).sort().values
    assert float((held - scores).max()) <= 0.02 * float(scores.std())
    assert (held >= scores).all()
    expected = [(1 + int((held >= s).sum())) / 101 for s in detector.score(test)]
    torch.testing.assert_close(p, torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(detector.predict(test, fpr=0.2), p <= 0.2)


@each
def test_unfitted_or_uncalibrated_is_a_clear_error(name: str) -> None:
    case = Case(name)
    detector = case.fitted()
    with pytest.raises(NotFittedError, match="calibrate"):
        detector.predict(case.data(5))
    if not stateless(name):
        with pytest.raises((NotFittedError, InputError), match=r"fit|attach"):
            case.create().score(case.data(5))


@each
def test_repr_shows_settings_and_state(name: str) -> None:
    energy = Case(name).create()
    assert ("not fitted" in repr(energy)) != stateless(name)
    assert repr(ready(name)).endswith("# fitted, calibrated")
    for setting, value in energy.settings.items():
        assert f"{setting}={value!r}" in repr(energy)


@each
def test_evaluate(name: str) -> None:
    case = Case(name)
    found = evaluate(ready(name), case.data(40, seed=2), {"more": case.data(30, seed=3)}, intervals=False)
    assert 0.2 < found["more"].auroc < 0.8, "the same distribution twice"


@each
def test_unknown_settings_are_named(name: str) -> None:
    with pytest.raises(InputError, match="no_such_setting"):
        create(name, no_such_setting=1)


SCRIPT = """
import json, sys
from pathlib import Path
from heat_ood import Energy
sys.path.insert(0, sys.argv[2])
from method_data import Case
found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    case = Case(folder.name)
    energy = case.attach(Energy.load(folder))
    test = case.data(50, seed=2)
    found[folder.name] = [energy.score(test).numpy().tobytes().hex(), energy.p_value(test).tolist(), repr(energy)]
print(json.dumps(found))
"""


def test_saved_and_loaded_in_a_fresh_process(tmp_path: Path) -> None:
    for name in CASES:
        ready(name).save(tmp_path / name)
    helpers = str(Path(__file__).parents[1] / "helpers")
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path), helpers]
    out = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, check=False)
    assert out.returncode == 0, out.stderr
    found = json.loads(out.stdout)
    assert set(found) == set(CASES)
    for name in CASES:
        test = Case(name).data(50, seed=2)
        score, p_value, text = found[name]
        assert score == ready(name).score(test).numpy().tobytes().hex(), name
        assert p_value == ready(name).p_value(test).tolist(), name
        assert text == repr(ready(name)), name


# What it reads


def without(features: Features, *names: str) -> Features:
    """The same samples without some columns."""
    columns = {n: features.column(n) for n in ("avg", "std", "logits") if n not in names}
    labels = None if "labels" in names else features.labels
    head = None if "head" in names else features.head
    if "avg" in names and "logits" not in names:
        head = None
    if "logits" in names and "avg" not in names:
        columns.pop("logits", None)
        head = None
    return Features(**columns, labels=labels, head=head)


@by_itself
def test_what_is_missing_is_named_by_fit_and_by_score(name: str) -> None:
    energy = Case(name).create()
    for column in (*energy.reads, *energy.learns):
        lacking = without(samples(), column)
        assert column not in lacking.available
        with pytest.raises(InputError, match=rf"\b{column}\b"):
            Case(name).create().fit(lacking)
        if column in energy.reads:
            with pytest.raises(InputError, match=rf"\b{column}\b"):
                ready(name).score(lacking)


@on_features
def test_registered_reads_are_what_it_needs(name: str) -> None:
    energy = create(name)
    assert set(methods()[name]) == {*energy.reads, *energy.learns}


@on_features
def test_features_of_another_model_are_refused(name: str) -> None:
    other = samples(10)
    other.fingerprint = "another"
    with pytest.raises(InputError, match="two different models"):
        ready(name).score(other)


@on_features
def test_features_that_are_not_finite_are_named(name: str) -> None:
    odd = samples(10)
    avg, std = odd.avg.clone(), odd.std.clone()
    avg[6], std[6] = math.nan, math.nan
    with pytest.raises(InputError, match=r"sample 6"):
        ready(name).score(Features(avg, std, head=odd.head, layers=odd.layers))


@pytest.mark.parametrize("name", ["knn", "ssd", "vim-residual"])
def test_a_contrastive_backbone_has_no_logits(name: str) -> None:
    """KNN+ and SSD+: features alone, with or without labels."""
    for labels in (samples().labels, None):
        detector = Case(name).create().fit(Features(avg=samples().avg, labels=labels))
        assert detector.score(far().avg).min() > detector.score(samples(60, seed=2).avg).max()


# In compositions


@by_itself
def test_it_can_be_composed(name: str) -> None:
    both = Composition({"energy": FreeEnergy(), name: Case(name).create()}).fit(samples())
    assert torch.isfinite(both.score(samples(20, seed=2))).all()
    assert set(Case(name).create().reads) <= set(both.reads)


@pytest.mark.parametrize("name", ["gram", "ensemble"])
def test_what_reads_more_than_features_is_refused(name: str) -> None:
    for make in (lambda: Composition({"a": create(name), "energy": FreeEnergy()}), lambda: HEAT((name,))):
        with pytest.raises(InputError, match=name):
            make().fit(samples())


# As priors of HEAT


@pytest.mark.parametrize("name", PRIORS)
def test_a_residual_corrects_it(name: str) -> None:
    detector = HEAT((name,), residual=QUICK).fit(samples(), progress=False)
    terms = detector.energies(samples(30, seed=2))
    t = detector.composition.members[name].temperature
    torch.testing.assert_close(terms[f"hybrid/{name}"], terms[f"prior/{name}"] / t + terms[f"residual/{name}"])
    assert not detector.outcomes[name].startswith("diverged")


@pytest.mark.parametrize("name", [n for n in PRIORS if n != "ebm"])
def test_its_gradient_is_that_of_its_energy(name: str) -> None:
    features = samples(dtype=torch.float64)
    prior = create_prior(name)
    assert isinstance(prior, Prior)
    prior.fit(features)
    z = prior.space(features[:20]).add(0.01).requires_grad_()  # off the kinks at zero
    (expected,) = torch.autograd.grad(prior.energy_of(z).sum(), z)
    torch.testing.assert_close(prior.gradient_of(z.detach()), expected, rtol=1e-8, atol=1e-10)
    plain = prior.space(features[:20])
    torch.testing.assert_close(prior.energy_of(plain), prior.score(features[:20]), rtol=1e-8, atol=1e-8)
    step = 1e-6 * torch.randn(z.shape, generator=torch.Generator().manual_seed(0), dtype=z.dtype)
    change = prior.energy_of(z + step) - prior.energy_of(z - step)
    torch.testing.assert_close(change.detach(), 2 * (expected * step).sum(1), rtol=1e-3, atol=1e-10)


@pytest.mark.parametrize("name", PRIORS)
def test_its_chains_start_where_features_are(name: str) -> None:
    """At the Gaussian mixture of its own space, projected to where features live; not at white noise."""
    prior = create_prior(name).fit(samples())
    mixture = prior.sampler(samples())
    assert mixture.space == prior.space
    start, real = mixture.propose(500, torch.Generator().manual_seed(0)), prior.space(samples())
    assert (start >= 0).all()
    torch.testing.assert_close(start.mean(0), real.mean(0), atol=0.25 * float(real.std(0).max()), rtol=0.1)
    assert torch.isfinite(prior.energy_of(start)).all()


@pytest.mark.parametrize("name", PRIORS)
def test_chains_move_down_its_energy(name: str) -> None:
    steps = type(QUICK)(epochs=1, hidden=8, depth=3, batch=64, steps=3)
    detector = HEAT((name,), residual=steps).fit(samples(), progress=False)
    assert torch.isfinite(detector.score(samples(10, seed=2))).all()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_corrected_says_why(name: str) -> None:
    assert not isinstance(create_prior(name), Prior)
    reason = create_prior(name).no_prior
    assert reason != Energy.no_prior, "a reason of its own"
    with pytest.raises(InputError, match=name):
        HEAT((name,)).fit(samples())


@pytest.mark.parametrize(
    "priors", [("gmm", "dice"), ("knn", "vim", "react"), ("gmm", "gmm-std", "dice"), ("scale", "gen")]
)
def test_any_subset_of_priors(priors: tuple[str, ...], tmp_path: Path) -> None:
    detector = HEAT(priors, residual=QUICK).fit(samples(), progress=False).calibrate(samples(100, seed=1))
    detector.save(tmp_path / "detector")
    test = samples(40, seed=2)
    assert torch.equal(HEAT.load(tmp_path / "detector").score(test), detector.score(test))
    assert {f"hybrid/{name}" for name in priors} <= set(detector.energies(test))


def test_uncorrectable_methods_can_stand_beside_corrected_ones() -> None:
    detector = HEAT(("gmm", "msp"), residual={"gmm": QUICK}).fit(samples(), progress=False)
    assert set(detector.hybrids_) == {"gmm"}
    assert torch.isfinite(detector.score(samples(10, seed=2))).all()


def test_the_users_model_is_left_alone() -> None:
    model = network().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for name in BEYOND:
        case = Case(name)
        models = (model, model) if name == "ensemble" else (model,)
        detector = case.create().attach(*models).fit(case.data(40))
        detector.score(case.data(10, seed=2))
    assert model.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
