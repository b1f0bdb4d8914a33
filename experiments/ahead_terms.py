"""The energies that ahead.py composes, of all samples: priors, candidates, and what the layers say of the class.

Each layer's class mixture has a posterior over the classes, log p_l(c | x), tempered by the likelihood of held-out
labels. The head's softmax and the layers are an ensemble in one pass; how far they agree is what the terms named
``product``, ``cross``, ``gap`` and ``mean`` tell, each another way. A class mixture of all layers side by side has
terms of its own: ``relative all`` is its ratio to one Gaussian, ``mean all`` its ensemble with the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ahead_methods import METHODS
from ahead_samples import distorted, head_of, mixtures, opened
from heat_ood import HEAT, Features, create
from heat_ood.energies import GaussianMixture, RelativeMixture, create_prior, dealt
from heat_ood.energies._relative import as_one
from heat_ood.energies._tasks import grouped_moments, without
from heat_ood.features import Moments, Space, working_dtype
from heat_ood.heat import _choice as recipe
from heat_ood.heat import default_choice
from heat_ood.heat._assembly import assembled, seed_of
from heat_ood.residual import Hybrid

FOLDS, MOST, SEEDS = 5, 20_000, 3
LIBRARY = ("gen", "fdbd", "vim", "react", "max-logit", "msp", "scale")
TEMPERATURES = np.geomspace(0.05, 200, 60)
Terms = dict[str, np.ndarray]


def mixture_names(priors: Sequence[str]) -> list[str]:
    return [name for name in priors if name.startswith("gmm")]


def relative_of(name: str) -> str:
    return f"relative-{name}"


class Whole:
    """A class mixture of several layers side by side, and its ratio to one Gaussian of everything.

    That Gaussian has the covariance within classes, shrunk, and that between class means. In whitened features it
    differs from the first within at most C − 1 directions, so the ratio costs no second product of d × d.
    """

    def __init__(self, space: Space, widths: tuple[int, ...], moments: Moments) -> None:
        self.mixture = GaussianMixture(space.columns).from_moments(moments, widths).eval()
        nu, share = self.mixture.nu.double(), moments.counts.double() / moments.n
        self.mean = share @ nu
        found = torch.linalg.svd((nu - self.mean) * share.sqrt()[:, None], full_matrices=False)
        kept, between = found.S > 1e-5, found.S.square()
        self.axes, self.between = found.Vh[kept].float(), between[kept]

    def of(self, features: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Density, ratio, class affinities."""
        found: list[list[Tensor]] = [[], [], []]
        shrunk, level = (self.between / (1 + self.between)).float(), 0.5 * float(self.between.log1p().sum())
        for batch in features.only(self.mixture.reads).batches(2048):
            y = self.mixture.coordinates(batch)
            v, density = y - self.mean.float(), self.mixture.energy_at(y)
            inside = ((v @ self.axes.T).square() * shrunk).sum(1)
            one = 0.5 * (v.square().sum(1) - inside) + level + self.mixture.log_volume
            for part, value in zip(found, (density, density - one, self.mixture.affinity(y)), strict=True):
                part.append(value)
        density, ratio, affinity = (torch.cat(part) for part in found)
        return density, ratio, affinity


class Gaussians:
    """A class mixture and its relative a layer, from moments, so that classes can be left out."""

    def __init__(self, names: Sequence[str], train: Features, moments: Mapping[str, object]) -> None:
        self.relatives: dict[str, RelativeMixture] = {}
        for name in names:
            prior = create_prior(relative_of(name))
            assert isinstance(prior, RelativeMixture)
            space, some, known = prior.space, train[:1], moments[name]
            widths, dtype = space.widths(some), working_dtype(space.blocks(some)[0])
            prior.density.from_moments(known, widths, dtype)
            prior.background.from_moments(as_one(known, (prior.density.white != 0).any(0)), widths, dtype)
            self.relatives[name] = prior.eval()

    def of(self, features: Features) -> tuple[Terms, dict[str, Tensor]]:
        """Density, relative and class affinities of every layer."""
        terms: Terms = {}
        affinities: dict[str, Tensor] = {}
        for name, relative in self.relatives.items():
            found: list[list[Tensor]] = [[], [], []]
            for batch in features.only(relative.reads).batches(4096):
                z = relative.space(batch, relative.density.white.dtype)
                y, y0 = relative.density.whiten(z), relative.background.whiten(z)
                density = relative.density.energy_at(y)
                for part, value in zip(
                    found,
                    (density, density - relative.background.energy_at(y0), relative.density.affinity(y)),
                    strict=True,
                ):
                    part.append(value)
            density, rel, affinities[name] = (torch.cat(part) for part in found)
            terms |= {name: density.numpy(), relative_of(name): rel.numpy()}
        return terms, affinities


def log_likelihood(values: Tensor, labels: Tensor, temperature: float) -> float:
    return float((values / temperature).log_softmax(1).gather(1, labels[:, None]).mean())


def temperature_of(values: Tensor, labels: Tensor) -> float:
    return max(TEMPERATURES, key=lambda t: log_likelihood(values, labels, float(t)))


def logits_of(features: Features, head: tuple[Tensor, Tensor], kept: Tensor | None = None) -> Tensor:
    weight, bias = (torch.as_tensor(t).float() for t in head)
    logits = torch.as_tensor(features.avg).float() @ weight.T + bias
    return logits if kept is None else logits[:, kept]


def agreement(logits: Tensor, affinities: Mapping[str, Tensor], temperatures: Mapping[str, float]) -> Terms:
    """What head and layers say of the class together."""
    head = (logits / temperatures["head"]).log_softmax(1)
    layers = {name: (a / temperatures[name]).log_softmax(1) for name, a in affinities.items()}
    predicted = logits.argmax(1, keepdim=True)
    found: dict[str, Tensor] = {"energy": -logits.logsumexp(1), "entropy": -(head.exp() * head).sum(1)}
    both = torch.stack([head, *layers.values()])
    mean = both.logsumexp(0) - np.log(len(both))
    found["mean entropy"] = -(mean.exp() * mean).sum(1)
    found["mean msp"] = -mean.amax(1)
    found["js"] = found["mean entropy"] + (both.exp() * both).sum(2).mean(0)
    average = torch.stack(list(layers.values())).mean(0)
    for w in (0.25, 1.0):
        product = logits / temperatures["head"] + w * average
        found[f"product {w:g}"] = -product.logsumexp(1)
    found["cross"] = -(head.exp() * average).sum(1)
    found["cross predicted"] = -average.gather(1, predicted).squeeze(1)
    for name, a in affinities.items():
        found[f"cross {name}"] = -(head.exp() * layers[name]).sum(1)
        found[f"gap {name}"] = (a.amax(1, keepdim=True) - a.gather(1, predicted)).squeeze(1)
    found["predicted"] = predicted.squeeze(1).float()
    return {key: value.numpy() for key, value in found.items()}


def together(logits: Tensor, whole: Whole, features: Features, temperature: float) -> Terms:
    """What the mixture of all layers says, alone and beside the head."""
    density, ratio, affinity = whole.of(features)
    head, own = logits.log_softmax(1), (affinity / temperature).log_softmax(1)
    mean = torch.logaddexp(head, own) - np.log(2)
    found = {"density all": density, "relative all": ratio, "mean all": -(mean.exp() * mean).sum(1)}
    return {key: value.numpy() for key, value in found.items()}


def candidates(train: Features) -> dict[str, object]:
    found: dict[str, object] = {name: create(name).fit(train) for name in LIBRARY}
    found["relative raw"] = RelativeMixture(normalise=False).fit(train)
    return found | {name: method(train) for name, method in METHODS.items()}


def scored(methods: Mapping[str, object], features: Features) -> Terms:
    return {
        name: (method.score(features) if hasattr(method, "score") else method(features)).numpy()  # type: ignore
        for name, method in methods.items()
    }


def keep_terms(name: str, seed: int, folder: Path) -> None:
    """Fit once, and write the energies of all candidates: ID tasks and test sets in files of their own."""
    data, heat = opened(name, seed), HEAT(seed=seed)
    fitting, held = heat.split(data.train)
    choice = default_choice(data.train)
    kept = held_up(choice.priors, fitting, held)
    names = mixture_names(choice.priors)
    spaces = {n: create_prior(n).space for n in names}  # type: ignore[attr-defined]
    small = fitting.subset(torch.arange(len(fitting))[:: max(1, len(fitting) // MOST)])
    group = dealt(small, FOLDS, 0)
    spaces["all"] = Space(tuple(column for space in spaces.values() for column in space.columns))
    widths = spaces["all"].widths(fitting[:1])
    by_group = {n: grouped_moments(fitting, space, group, FOLDS) for n, space in spaces.items()}
    known = {n: sum(parts[1:], parts[0]) for n, parts in by_group.items()}
    gaussians, methods = Gaussians(names, fitting, known), candidates(fitting)
    whole = Whole(spaces["all"], widths, known["all"])
    head = data.train.head
    labels = torch.as_tensor(held.labels)
    affinities = gaussians.of(held)[1]
    temperatures = {n: temperature_of(a, labels) for n, a in affinities.items()}
    temperatures["head"] = 1.0  # it was trained by likelihood, and has seen what is held out here
    print(name, seed, {k: round(float(v), 2) for k, v in temperatures.items()}, flush=True)
    temperatures["all"] = temperature_of(whole.of(held)[2], labels)
    accuracy = {n: float((a.argmax(1) == labels).float().mean()) for n, a in affinities.items()}
    print(name, seed, {k: round(100 * v, 1) for k, v in accuracy.items()}, flush=True)

    def terms(features: Features) -> Terms:
        (densities, affinities), logits = gaussians.of(features), logits_of(features, head)
        found = densities | scored(methods, features) | agreement(logits, affinities, temperatures)
        return found | together(logits, whole, features, temperatures["all"])

    tasks = {"held": terms(held), "mixtures": terms(mixtures(held, seed))}
    tasks |= {f"kind {kind}": terms(features) for kind, features in distorted(name, data, seed)}
    for fold in range(FOLDS):
        rows = (group != fold).nonzero().flatten()
        known = {n: without(parts, fold, rows) for n, parts in by_group.items()}
        inside = group[held.labels] != fold
        train = small.subset((group[small.labels] != fold).nonzero().flatten()).among(rows)
        parts = [held.subset(part.nonzero().flatten()).among(rows, False) for part in (inside, ~inside)]
        if data.frozen:
            new = head_of(train, name == "text")
            train = replaced(train, new)
            parts = [replaced(part, new) for part in parts]
        elif len(train.head[0]) != len(rows):
            raise SystemExit("the head still has all classes")
        own, some, one = Gaussians(names, small, known), candidates(train), Whole(spaces["all"], widths, known["all"])
        for what, part in zip(("in", "out"), parts, strict=True):
            densities, affinities = own.of(part)
            found = densities | scored(some, part)
            logits = logits_of(part, train.head)
            found |= agreement(logits, affinities, temperatures) | together(logits, one, part, temperatures["all"])
            tasks[f"fold {fold} {what}"] = found
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"id-{name}-{seed}.npz", tasks, used=kept, priors=choice.priors)
    tests = {"test": data.test, **data.ood}
    write(folder / f"ood-{name}-{seed}.npz", {k: terms(f) for k, f in tests.items()})


def held_up(priors: Sequence[str], fitting: Features, held: Features) -> tuple[str, ...]:
    """Without a relative energy of the last layer that ID data does not support."""
    relative = [name for name in priors if name.startswith("relative")]
    told = recipe.unseen_told(relative, fitting, held)
    return tuple(name for name in priors if name not in relative or told.get(name, 0.0) > 0.5)


def replaced(features: Features, head: tuple[Tensor, Tensor]) -> Features:
    """The same with another head."""
    layers = {name: (layer.avg, layer.std) for name, layer in features.layers.items()}
    return Features(avg=features.avg, std=features.std, labels=features.labels, head=head, layers=layers or None)


def keep_residuals(name: str, seed: int, folder: Path) -> None:
    """Residuals of three seeds against contrast, of samples of every set."""
    data, heat = opened(name, seed), HEAT(seed=seed)
    if data.contrast is None:
        return
    fitting, held = heat.split(data.train)
    choice = default_choice(data.train)
    choice = choice.without([n for n in choice.priors if n not in held_up(choice.priors, fitting, held)], ())
    found: dict[str, Terms] = {}
    for k in range(SEEDS):
        fitted = HEAT(choice.priors, choice.weights, seed=seed)
        hybrid = assembled(choice.priors, recipe.replace(choice, residuals=recipe.AGAINST_CONTRAST), 0.0, seed)
        assert isinstance(hybrid, Hybrid)
        hybrid.seed = seed_of(seed, "joint") if k == 0 else seed_of(seed, f"joint {k}")
        composition = hybrid.prior
        for part in composition.members.values():
            part.fit(fitting)
        composition.standardise(fitted.standardising(fitting, held))
        hybrid.fit(fitting, held, data.contrast)
        hybrid.eval()
        for key, features in {"held": held, "test": data.test, **data.ood}.items():
            with torch.inference_mode():
                values = torch.cat([hybrid.correction(b) for b in features.batches(4096)]).numpy()
            found.setdefault(key, {})[f"residual {k}"] = values
        print(name, seed, "residual", k, flush=True)
    write(folder / f"residual-{name}-{seed}.npz", found)


def write(file: Path, sets: Mapping[str, Terms], **more: Sequence[str]) -> None:
    flat = {f"{name}|{term}": values for name, found in sets.items() for term, values in found.items()}
    np.savez(file, **flat, **{key: np.array(value) for key, value in more.items()})


def read(file: Path) -> tuple[dict[str, Terms], dict[str, list[str]]]:
    sets: dict[str, Terms] = {}
    more: dict[str, list[str]] = {}
    with np.load(file) as stored:
        for key in stored.files:
            name, _, term = key.partition("|")
            if term:
                sets.setdefault(name, {})[term] = stored[key].astype(np.float64)
            else:
                more[key] = stored[key].tolist()
    return sets, more
