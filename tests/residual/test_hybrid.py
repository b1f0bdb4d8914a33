"""Residuals with a known answer, and what keeps them from learning the wrong thing."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import rankdata
from torch.distributions import MultivariateNormal

from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.energies import Composition, FreeEnergy, GaussianMixture, create
from heat_ood.residual import Hybrid, Network
from heat_ood.residual._coordinates import Coordinates
from heat_ood.residual._hybrid import drawer, gatherer, layered_mixture
from heat_ood.residual._negatives import Negatives
from heat_ood.residual._training import loss_of

THREE = ("gmm", "gmm-std", "energy")


def two_gaussians(n=40_000, d=3):
    """Data p and a prior q that is wrong in its mean and in its spread."""
    p = MultivariateNormal(torch.full((d,), 0.4), torch.diag(torch.tensor([1.0, 0.6, 1.5])[:d]))
    q = MultivariateNormal(torch.zeros(d), torch.eye(d))
    torch.manual_seed(0)
    prior = GaussianMixture(normalise=False, shrinkage=0.0, clusters=1).fit(Features(avg=q.sample((200_000,))))
    return p, q, prior, Features(avg=p.sample((n,)))


@pytest.mark.parametrize(
    ("lam", "bounded", "odds"), [(0.5, True, 1), (2.0, True, 1), (10.0, True, 1), (2.0, False, 1), (1.0, True, 4)]
)
def test_approaches_the_bounded_log_density_ratio(lam, bounded, odds):
    p, q, prior, train = two_gaussians()
    training = {"hidden": 64, "depth": 4, "epochs": 6, "batch": 512, "lr": 2e-3}
    settings = Residual(lam=lam, odds=odds, bounded=bounded, widen=(1.0, 1.0), temperature=1.0, **training)
    hybrid = Hybrid(prior, settings).fit(train, Features(avg=p.sample((4096,))))

    z = torch.cat([p.sample((2000,)), q.sample((2000,))])
    ratio = p.log_prob(z) - q.log_prob(z)
    expected = -torch.tanh((ratio + math.log(odds)) / 2) / (2 * lam)
    _, residual = hybrid.parts(Features(avg=z))

    correlation = torch.corrcoef(torch.stack([expected, residual]))[0, 1].item()
    slope = (torch.cov(torch.stack([expected, residual]))[0, 1] / expected.var()).item()
    assert correlation > 0.98
    assert 0.9 < slope < 1.1
    assert residual.abs().max() <= settings.bound * (1 if bounded else 2)
    assert hybrid.outcome_ == "trained"


@pytest.mark.parametrize("odds", [1.0, 20.0])
def test_the_least_loss_is_where_the_formula_says(odds):
    """Minimise the loss over a table of energies on a finite set, where it is an ordinary least-squares problem."""
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    n = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    lam = 3.0
    energy = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([energy], max_iter=100, tolerance_grad=1e-14, tolerance_change=1e-16)

    def closure():
        optimiser.zero_grad()
        real = odds * p  # as if so many more of the samples were real
        loss = (real * energy).sum() - (n * energy).sum() + lam * ((real + n) * energy.square()).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    assert torch.allclose(energy.detach(), -torch.tanh(0.5 * (odds * p / n).log()) / (2 * lam), atol=1e-9)


def test_loss_is_the_formula():
    real, negative = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 6.0])
    assert loss_of(real, negative, 0.5).item() == pytest.approx(2 - 4 + 0.5 * (5 + 20))


def test_odds_move_the_same_training_and_nothing_else():
    _, _, prior, train = two_gaussians(n=2000)
    quick = Residual(epochs=2, hidden=16, depth=3, lr=1e-3)
    even, rare = (Hybrid(prior, replace(quick, odds=odds), seed=1).fit(train) for odds in (1.0, 20.0))
    assert even.log_ == rare.log_
    (energy, before), (same, after) = even.parts(train), rare.parts(train)
    assert torch.equal(energy, same)
    bound = quick.bound
    torch.testing.assert_close(after, bound * torch.tanh(torch.atanh(before / bound) - 0.5 * math.log(20)))
    assert after.max() < before.max()


def test_odds_leave_a_residual_that_is_switched_off_at_zero():
    _, _, prior, _ = two_gaussians(n=10)
    train = Features(avg=prior.propose(2000, torch.Generator().manual_seed(0)))
    settings = Residual(odds=20.0, widen=(1.0, 1.0), epochs=1, hidden=8, lr=1e-12)
    with pytest.warns(RuntimeWarning, match="switched off"):
        hybrid = Hybrid(prior, settings).fit(train)
    assert not hybrid.parts(train)[1].any()


def test_infinite_lambda_gives_the_prior_back():
    _, _, prior, train = two_gaussians(n=500)
    hybrid = Hybrid(prior, Residual(lam=math.inf)).fit(train)
    energy, residual = hybrid.parts(train)
    assert not residual.any()
    assert (rankdata(hybrid.score(train)) == rankdata(energy)).all()


def relu_features(n=4000, d=16, seed=0):
    """Sparse, non-negative features of two classes whose norm varies from sample to sample, as real ones do."""
    torch.manual_seed(seed)
    labels = torch.arange(n) % 2
    centre = torch.rand(2, d)
    z = (centre[labels] + 0.5 * torch.randn(n, d)).relu() * (1 + 0.5 * torch.rand(n, 1))
    return Features(avg=z, labels=labels, head=(torch.randn(2, d), torch.zeros(2)))


def auroc(low, high):
    ranks = rankdata(torch.cat([low, high]).numpy())
    return (ranks[len(low) :].sum() - len(high) * (len(high) + 1) / 2) / (len(low) * len(high))


def negatives_of(prior, settings, train, temperature=1.0):
    """The negatives that a hybrid of this prior would train with."""
    coordinates, generator = Coordinates(prior.mixture, settings.whiten), torch.Generator().manual_seed(0)
    data = drawer(gatherer(train, coordinates), len(train), generator)
    return Negatives(prior, coordinates, temperature, settings, generator, data)


@pytest.mark.parametrize("prior", [GaussianMixture(), FreeEnergy(proposals=True)], ids=["gmm", "energy"])
@pytest.mark.parametrize("steps", [0, 5])
def test_the_norm_alone_cannot_tell_real_from_proposed(prior, steps):
    train = relu_features()
    prior = type(prior)(**prior.settings).fit(train)
    negatives = negatives_of(prior, Residual(steps=steps, step=(0.01, 0.001)), train)
    z = negatives.coordinates.leave(negatives.draw(4000, Network(16, 8)))
    real, proposed = prior.space(train).norm(dim=1), z.norm(dim=1)

    # neither their order nor their spread tells the two apart; compared to five digits, as the rounding may differ
    real, proposed = real.mul(1e5).round(), proposed.mul(1e5).round()
    assert abs(auroc(real, proposed) - 0.5) < 0.05
    centre = real.median()
    assert abs(auroc((real - centre).abs(), (proposed - centre).abs()) - 0.5) < 0.05


@pytest.mark.parametrize("start", ["prior", "data", "persistent"])
@pytest.mark.parametrize("whiten", [True, False])
def test_every_start_and_both_coordinates_train_with_chains(start, whiten):
    train = relu_features(1500)
    chains = {"steps": 5, "step": (0.05, 0.01), "start": start, "whiten": whiten}
    settings = Residual(hidden=32, epochs=3, lr=2e-3, patience=1.0, **chains)
    detector = HEAT(priors=("gmm", "energy", "ebm"), residual=settings).fit(train)
    again = HEAT(priors=("gmm", "energy", "ebm"), residual=settings).fit(train)
    assert torch.equal(detector.score(train), again.score(train))
    assert all(log[-1]["epoch"] == 3 for log in detector.log.values())
    assert all(math.isfinite(v) for log in detector.log.values() for e in log for v in e.values())


def test_chains_descend_the_hybrid_energy():
    """Without noise, Langevin steps lower the energy that the chains follow."""
    train = relu_features()
    prior = GaussianMixture().fit(train)
    temperature = 30.0
    settings = Residual(steps=10, step=(0.2, 0.1), noise=(0.0, 0.0))
    negatives = negatives_of(prior, settings, train, temperature)
    start = negatives.propose(1000)
    network = Network(16, 32, bound=0.25, generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(network.layers[-1].weight)
    end = negatives.move(start, network)

    def energy(y):
        return prior.energy_at(y) / temperature + network(y)

    assert (energy(end) < energy(start)).float().mean() > 0.95


@pytest.mark.parametrize("dead", [False, True])
def test_the_whitening_goes_into_the_first_layer(dead):
    """Training happens in whitened features, scoring in the features themselves: the same function."""
    train = relu_features(500)
    if dead:
        train.avg[:, 3] = 0.0
    mixture = GaussianMixture().fit(train.to(torch.float64))
    coordinates = Coordinates(mixture, whiten=True)
    network = Network(coordinates.width, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.nn.init.normal_(network.layers[-1].weight)
    z = mixture.space(train.to(torch.float64))
    expected = network(coordinates.enter(z))
    assert torch.allclose(coordinates.absorb(network)(z), expected, atol=1e-9)


def test_gaussian_priors_share_their_features():
    train = relu_features(400)
    both = Features(avg=train.avg, std=train.avg.flip(1), labels=train.labels, head=train.head)
    quick = {"epochs": 1, "hidden": 8}
    shared, own = (HEAT(THREE, residual=Residual(shared=s, **quick)).fit(both).hybrids_ for s in (True, False))
    assert [h.space_.columns for h in shared.values()] == [("avg", "std"), ("avg", "std"), ("avg",)]
    assert [h.space_.columns for h in own.values()] == [("avg",), ("std",), ("avg",)]
    assert [h.space_.normalise for h in shared.values()] == [True, True, False]


def test_contrast_is_learned_in_its_share():
    train = relu_features()
    odd = Features(avg=torch.rand(500, 16) * torch.tensor([3.0] + [0.05] * 15))
    settings = Residual(hidden=32, epochs=4, lr=3e-3, contrast_share=0.5)
    plain, taught = (Hybrid(GaussianMixture(), settings).fit(train, contrast=c) for c in (None, odd))
    gain = [h.parts(odd)[1].mean() - h.parts(train)[1].mean() for h in (plain, taught)]
    assert gain[1] > 0.6 * 2 * settings.bound
    assert gain[1] > gain[0]


@pytest.mark.parametrize("count", [1, 9, 10, 35, 200])
def test_a_tenth_of_the_contrast_only_watches(count):
    """Too few to part are used for both."""
    contrast = Features(avg=torch.eye(count) + 1)  # sample i is known by its channel i
    hybrid = Hybrid(GaussianMixture(normalise=False), seed=3)
    mixture = GaussianMixture(normalise=False, clusters=1).fit(Features(avg=torch.rand(300, count) + 1))
    coordinates, generator = Coordinates(mixture, whiten=False), torch.Generator().manual_seed(0)
    seen = [set(draw(40 * count).argmax(1).tolist()) for draw in hybrid.contrasts(contrast, coordinates, generator)]
    aside = count // 10
    if aside:
        assert not seen[0] & seen[1]
        assert (len(seen[0]), len(seen[1])) == (count - aside, aside)
    else:
        assert seen[0] == seen[1] == set(range(count))


def test_training_never_sees_the_contrast_that_watches(monkeypatch):
    """What it learns from and what tells when to stop are kept apart, for a whole fit."""
    train, contrast = relu_features(300), relu_features(50, seed=1)
    drawn = {"draw": [], "unmoved": []}
    for name, seen in drawn.items():
        original = getattr(Negatives, name)

        def spy(self, *args, original=original, seen=seen):
            found = original(self, *args)
            seen.append(found.clone())
            return found

        monkeypatch.setattr(Negatives, name, spy)
    Hybrid(GaussianMixture(), Residual(epochs=40, hidden=8, contrast_share=1.0, whiten=False, patience=1)).fit(
        train, contrast=contrast
    )
    space = GaussianMixture().space(contrast)
    numbers = {
        name: set((torch.cat(seen)[:, None] - space).abs().sum(2).argmin(1).tolist()) for name, seen in drawn.items()
    }
    assert len(numbers["unmoved"]) == 5
    assert numbers["draw"] == set(range(50)) - numbers["unmoved"]


def layered(n=600, classes=3, labels=None):
    """Two layers that vary together within a class."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    common = torch.randn(n, 1, generator=g, dtype=torch.float64)
    z, s, deep = (3 + y[:, None] + common + torch.randn(n, d, generator=g, dtype=torch.float64) for d in (4, 3, 5))
    head = (torch.eye(classes, 4, dtype=torch.float64), None)
    return Features(
        avg=z, std=s, labels=y if labels is None else labels(y), head=head, layers={"deep": (deep, deep.sin())}
    )


def off_diagonal(mixture):
    """How far a whitening mixes the last layer with the earlier one."""
    first = int(mixture.widths[:2].sum())
    return max(mixture.white[:first, first:].abs().max(), mixture.white[first:, :first].abs().max())


def test_the_joint_residual_whitens_layer_by_layer():
    train = layered()
    composition = Composition({n: create(n) for n in ("energy", "gmm-joint@deep", "gmm-joint")}).fit(train)
    mixture = Hybrid(composition).mixture_for(train)
    assert mixture.columns == ("avg", "std", "avg@deep", "std@deep")
    assert off_diagonal(mixture) == 0
    parts = [composition.members[n] for n in ("gmm-joint", "gmm-joint@deep")]
    assert torch.allclose(mixture.coordinates(train), torch.cat([p.coordinates(train) for p in parts], 1))


def test_mixtures_that_are_fitted_are_not_fitted_again(monkeypatch):
    train = layered()
    composition = Composition({n: create(n) for n in ("energy", "gmm-joint@deep", "gmm-joint")}).fit(train)
    monkeypatch.setattr(GaussianMixture, "fit", lambda *_: pytest.fail("fitted again"))
    Hybrid(composition).mixture_for(train)


def test_what_no_prior_has_is_fitted():
    train = layered()
    composition = Composition({n: create(n) for n in ("energy", "gmm@deep", "gmm-std")}).fit(train)
    mixture = Hybrid(composition).mixture_for(train)
    assert mixture.columns == ("avg", "std", "avg@deep")
    expected = [GaussianMixture(c).fit(train).coordinates(train) for c in (("avg", "std"), ("avg@deep",))]
    assert torch.allclose(mixture.coordinates(train), torch.cat(expected, 1))


@pytest.mark.parametrize("case", ["no labels", "a class without samples", "clusters of one's own"])
def test_components_that_have_nothing_to_do_with_each_other_are_not_multiplied(case):
    """Clusters of two layers share their numbers and nothing else."""
    labels = {"a class without samples": lambda y: y.where(y != 1, 2)}.get(case)
    train = layered(labels=labels)
    if case == "no labels":
        train = Features(avg=train.avg, std=train.std, head=train.head, layers=train.layers)
    columns = ("avg", "std", "avg@deep", "std@deep")
    known = [GaussianMixture(c, clusters=3).fit(train) for c in (columns[:2], columns[2:])]
    mixture = layered_mixture(train, columns, known)
    assert mixture.columns == columns
    if case == "clusters of one's own":
        assert off_diagonal(mixture) == 0
        expected = [GaussianMixture(c).fit(train).coordinates(train) for c in (columns[:2], columns[2:])]
        assert torch.allclose(mixture.coordinates(train), torch.cat(expected, 1))
    else:
        assert off_diagonal(mixture) > 0.01
        assert torch.isfinite(mixture.score(train)).all()


@pytest.mark.parametrize("labels", [None, lambda y: y.where(y != 1, 2)])
def test_a_joint_residual_does_without_whole_labels(labels):
    train = layered(labels=labels)
    if labels is None:
        train = Features(avg=train.avg, std=train.std, head=train.head, layers=train.layers)
    settings = Residual(joint=True, epochs=2, hidden=8)
    priors = ("energy", GaussianMixture(clusters=2), GaussianMixture(("avg@deep",), clusters=3))
    heat = HEAT(priors, residual=settings).fit(train, contrast=layered(100))
    assert torch.isfinite(heat.score(train)).all()


def test_a_residual_that_learns_nothing_is_switched_off_and_says_so():
    """Data drawn from the prior itself: there is nothing to correct."""
    torch.manual_seed(0)
    train = Features(avg=torch.randn(300, 40))
    settings = Residual(hidden=256, epochs=6, lr=1e-2, patience=1.0, anneal=False, widen=(1.0, 1.0))
    prior = GaussianMixture(normalise=False, shrinkage=0.0, clusters=1).fit(Features(avg=torch.randn(100_000, 40)))
    with pytest.warns(RuntimeWarning, match="switched off"):
        hybrid = Hybrid(prior, settings).fit(train, Features(avg=torch.randn(2000, 40)))
    assert not hybrid.parts(train)[1].any()


def test_divergence_is_reported_not_silent():
    train = relu_features(600)
    with pytest.warns(RuntimeWarning, match="diverged"):
        hybrid = Hybrid(GaussianMixture(), Residual(lr=1e30, epochs=2, bounded=False)).fit(train)
    assert torch.isfinite(hybrid.score(train)).all()


def test_stops_early_when_held_out_loss_no_longer_falls():
    p, _, prior, train = two_gaussians(n=300)
    settings = Residual(epochs=200, patience=0.05, lr=5e-3, anneal=False, hidden=128, batch=64, widen=(1.0, 1.0))
    hybrid = Hybrid(prior, settings).fit(train, Features(avg=p.sample((2000,))))
    losses = [e["held_out_loss"] for e in hybrid.log_]
    assert len(losses) < 200
    assert losses.index(min(losses)) == len(losses) - 1 - 10
    assert hybrid.outcome_ == f"stopped early after epoch {len(losses)} of 200"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lam": 0},
        {"lam": math.nan},
        {"depth": 1},
        {"steps": -1},
        {"start": "nowhere"},
        {"start": "data"},
        {"contrast_share": 2},
        {"widen": (0.0, 1.0)},
        {"temperature": -1.0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_meant_are_refused_by_name(wrong):
    with pytest.raises(InputError, match="Residual"):
        Hybrid(GaussianMixture(), Residual(**wrong)).fit(relu_features(100))


def test_repr_names_what_differs_from_the_default():
    assert repr(Residual()) == "Residual()"
    assert repr(Residual(steps=3)) == "Residual(steps=3)"


@pytest.mark.parametrize("batch", [1, 64, 256])
@pytest.mark.parametrize("n", [1, 3, 30, 255, 256, 257, 900, 1000, 5000, 50_000])
def test_the_work_of_a_default_training_is_bounded_however_few_samples_there_are(n, batch):
    settings = Residual(batch=batch)
    steps = settings.passes(n) * math.ceil(n / batch)
    assert 600 <= steps <= max(1200, 4 * math.ceil(n / batch))
    if n >= batch:
        assert settings.passes(n) == max(4, math.ceil(600 * batch / n))


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice", "ignore:The residual:RuntimeWarning")
def test_three_samples_are_fitted_in_six_hundred_steps():
    torch.manual_seed(0)
    z = torch.rand(3, 4)
    train = Features(avg=z, labels=[0, 1, 1], head=(torch.randn(2, 4), None))
    detector = HEAT(residual={"energy": Residual(hidden=4, depth=2)}).fit(train, progress=False)
    assert len(detector.log["energy"]) <= 600
    assert torch.isfinite(detector.score(train)).all()
