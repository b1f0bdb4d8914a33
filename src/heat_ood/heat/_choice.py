"""What HEAT is made of: as it is told or, where it is not, by what the features have and whether there is contrast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..energies import Energy, Task, bend_of, create_prior, excess_of, left_out_tasks
from ..errors import InputError
from ..features import Features, Space
from ..metrics import auroc
from ..residual import Residual

__all__ = [
    "AGAINST_CONTRAST",
    "AUTO",
    "FAMILY_WEIGHTS",
    "ONE_LAYER_WEIGHTS",
    "PAPER_PRIORS",
    "RELATIVES",
    "Choice",
    "Residuals",
    "default_choice",
    "default_residual",
    "supported",
    "unseen_told",
]

AUTO = "auto"
PAPER_PRIORS = ("gmm", "gmm-std", "energy")
"""The paper's three, all of the last layer."""
FAMILY_WEIGHTS = {"energy": 6.0, "relative": 2.0, "densities": 4.0}
"""Weights of the default's three views of a sample; the layers share the last. How they came about: docs/beyond.md."""
ONE_LAYER_WEIGHTS = {"energy": 3.0, "relative": 1.0, "densities": 4.0}
"""The same where there is one layer: its density stands alone against all that is far away, and counts by what exceeds
the ordinary, where there is an energy beside it."""
RELATIVES = ("relative", "discriminant")
"""How the names of priors begin that set the classes against one Gaussian of everything."""
ACROSS_WEIGHTS = {"energy": 6.0, "relative": 4.0, "densities": 4.0}
"""The same where the relative energy is of all layers, side by side: it says what they know of the classes, and their
densities count by what exceeds the ordinary: docs/beyond.md."""
WIDEST = 5_000
"""So many numbers a sample may have for all layers to be read side by side: their moments are matrices of 200 MB."""
ENOUGH = 50_000
"""So many samples judge which relative energy holds."""
AGAINST_CONTRAST = Residual(joint=True, lam=1.0, odds=20.0, contrast_share=1.0, depth=4)
"""One residual for the whole composition, which learns to tell the data from contrast samples. Its bound and its odds
did best, on average over four pairs of a network and its classes, by distortions and classes unseen: docs/beyond.md."""

LACKING = {
    "no logits": "logits (pass them, or the head)",
    "no std": "std (maps or tokens have it)",
    "no earlier layers": "earlier layers (extract with layers='stages')",
    "no contrast": "contrast (Extractor.contrast makes it)",
}
"""What features may lack, and how to say that HEAT does without it."""

Residuals = Residual | Mapping[str, Residual | None] | None


@dataclass(frozen=True)
class Choice:
    """What one fit of HEAT settles before it computes anything.

    Args:
        priors: their names.
        weights: one a prior; None weighs alike.
        residuals: how they are corrected: each alike, together (``joint``), or by name.
        lacking: what the features lack of the whole default, in the words of ``LACKING``, and sentences on what was
            left out.
        excess: those that count together, by what exceeds the ordinary alone.
    """

    priors: tuple[str, ...]
    weights: tuple[float, ...] | None
    residuals: Residuals = None
    lacking: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()

    def without(self, dropped: Sequence[str], why: Sequence[str]) -> Choice:
        """The same without some priors."""
        kept = [i for i, name in enumerate(self.priors) if name not in dropped]
        weights = None if self.weights is None else tuple(self.weights[i] for i in kept)
        return replace(self, priors=tuple(self.priors[i] for i in kept), weights=weights, lacking=(*self.lacking, *why))

    def __str__(self) -> str:
        """What is used and what is not, in sentences.

        Example:
            >>> print(Choice(("energy", "gmm"), None, {"energy": Residual()}, ("no std", "no contrast")))
            HEAT uses energy and gmm; a residual corrects energy. It does without std (maps or tokens have it) and
            without contrast (Extractor.contrast makes it).
        """
        if isinstance(self.residuals, Mapping):
            single = [name for name, settings in self.residuals.items() if settings is not None]
            how = f"; a residual corrects {enumerated(single)}" if single else ""
        elif self.residuals is None:
            how = ""
        else:
            how = "; a residual corrects the whole" if self.residuals.joint else "; a residual corrects each"
        without = [f"without {LACKING[lack]}" for lack in self.lacking if lack in LACKING]
        sentences = [f"HEAT uses {enumerated(self.priors)}{how}"]
        sentences += [f"It does {enumerated(without)}"] if without else []
        sentences += [lack for lack in self.lacking if lack not in LACKING]
        return " ".join(f"{sentence}." for sentence in sentences)


def enumerated(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def default_choice(features: Features) -> Choice:
    """The default's priors: the energy of the logits, the class mixture against one Gaussian, a mixture a layer.

    The mixture of a lone layer counts by what exceeds the ordinary: docs/beyond.md says why.

    Example:
        >>> z = torch.rand(4, 3)
        >>> default_choice(Features(avg=z, std=z, head=(z, None), layers={"one": (z + 1, z)})).priors
        ('energy', 'relative-gmm-joint', 'gmm-joint@one', 'gmm-joint')
        >>> default_choice(Features(avg=z)).priors
        ('relative-gmm', 'gmm')
        >>> default_choice(Features(avg=z, head=(z, None))).excess
        ('gmm',)
    """
    there, found, lacking = features.available, dict[str, float](), list[str]()
    last, earlier = joint_name(there, ""), earlier_layers(features)
    densities = [name for layer in (*earlier, "") if (name := joint_name(there, layer)) is not None]
    weights = FAMILY_WEIGHTS if len(densities) > 1 else ONE_LAYER_WEIGHTS
    if "logits" in there:
        found["energy"] = weights["energy"]
    else:
        lacking.append("no logits")
    if last is not None and "avg" in there:
        found["relative-gmm-joint" if last == "gmm-joint" else "relative-gmm"] = weights["relative"]
    found |= {name: weights["densities"] / len(densities) for name in densities}
    if "std" not in there:
        lacking.append("no std")
    if not earlier:
        lacking.append("no earlier layers")
    excess = tuple(densities) if len(densities) == 1 and "energy" in found else ()
    return Choice(tuple(found), tuple(found.values()), lacking=tuple(lacking), excess=excess)


def joint_name(available: set[str] | frozenset[str], layer: str) -> str | None:
    """The Gaussian prior on all poolings that a layer has; the empty name is the last layer."""
    suffix = f"@{layer}" if layer else ""
    have = tuple(f"{pooling}{suffix}" in available for pooling in ("avg", "std"))
    names = {(True, True): "gmm-joint", (True, False): "gmm", (False, True): "gmm-std"}
    return names[have] + suffix if have in names else None


def earlier_layers(features: Features) -> list[str]:
    """The names of the layers but for one that is what the head reads, once more."""
    some = features[:8]
    avg = some.avg

    def same(name: str) -> bool:
        other = some.layers[name].avg
        return avg is not None and other is not None and avg.shape == other.shape and torch.allclose(avg, other)

    return [name for name in some.layers if not same(name)]


def default_residual(priors: Sequence[str | Energy] | None, names: Sequence[str], contrast: bool) -> Residuals:
    """With contrast one residual for the whole; else one for each prior that was named, of the default the energy's.

    Args:
        priors: as HEAT was given them; None is the default.
        names: of the priors that are used.
        contrast: whether there are contrast samples.
    """
    if contrast:
        return AGAINST_CONTRAST
    if priors is not None:
        return Residual()
    return {"energy": Residual()} if "energy" in names else {names[-1]: Residual()}


def supported(choice: Choice, fitting: Features, held: Features) -> Choice:
    """The default's choice with the relative energy that ID data supports: of the last layer, of all layers, or none.

    Judged is by classes that are left out, which flatters the layer that was trained to tell classes apart: where all
    layers do better in spite of that, alone and in the composition by ``ACROSS_WEIGHTS``, they know the classes. Where
    each prior is to be corrected by itself it stays that of the last layer: that of all has no density to correct.
    """
    last = next((name for name in choice.priors if name.startswith(RELATIVES)), None)
    if last is None or len(choice.priors) == 1:
        return choice
    instead = [] if named_alone(choice.residuals, last) else across(choice, fitting)
    told = unseen_told([last, *instead], fitting, held)
    if told.get(last, 0.0) <= 0.5:
        why = "it does not tell these classes from unseen ones" if told else "too few labelled classes speak for it"
        usual = choice.without([last], [f"{last} is left out: {why}"])
    else:
        usual = choice
    best = max(told, key=lambda name: told[name], default=last)
    if best == last or told[best] <= 0.5 or choice.weights is None:
        return usual
    whole = with_all(choice, last, best)
    return whole if told_by(whole, usual, fitting=fitting, held=held) else usual


def with_all(choice: Choice, last: str, best: str) -> Choice:
    """The same with the relative energy of all layers in the place of the last one's, and its weights."""
    densities = [name for name in choice.priors if name not in ("energy", last)]
    shares = {best: ACROSS_WEIGHTS["relative"], "energy": ACROSS_WEIGHTS["energy"]}
    shares |= dict.fromkeys(densities, ACROSS_WEIGHTS["densities"] / len(densities))
    priors = tuple(best if name == last else name for name in choice.priors)
    excess = tuple(densities) if "energy" in priors else ()
    return replace(choice, priors=priors, weights=tuple(shares[name] for name in priors), excess=excess)


def named_alone(residuals: Residuals, name: str) -> bool:
    """Whether a residual was asked for that corrects this prior by itself, or the prior was named among them."""
    if isinstance(residuals, Mapping):
        return name in residuals
    return residuals is not None and not residuals.joint


def across(choice: Choice, features: Features) -> list[str]:
    """The relative energy of all layers side by side, if there are some with the same poolings, and not too wide."""
    densities = [name for name in choice.priors if name.startswith("gmm")]
    bases, layers = zip(*((base, layer) for base, _, layer in (name.partition("@") for name in densities)), strict=True)
    names = {"gmm": "discriminant", "gmm-joint": "discriminant-joint"}
    earlier = [layer for layer in layers if layer]
    alike = len(set(bases)) == 1 and bases[0] in names
    if not alike or not earlier or "" not in layers or any("+" in name for name in earlier):
        return []
    name = "+".join([names[bases[0]], *earlier])
    return [name] if sum(Space(create_prior(name).reads).widths(features[:1])) <= WIDEST else []


def folds_of(fitting: Features) -> int:
    """In how many groups the classes are left out; none where there are too few."""
    return next((folds for folds in (5, 2) if (fitting.classes or 0) >= 2 * folds), 0)


def unseen_told(priors: Sequence[str], fitting: Features, held: Features) -> dict[str, float]:
    """How well each prior tells classes that it has not seen from those it has: left out in groups, mean AUROC.

    The relative energy can point the wrong way, where the features were not trained on these classes (docs/beyond.md).
    Where there are no labels, or too few classes to leave some out, nothing speaks for any.
    """
    tasks = unseen_tasks(priors, fitting, held)
    return {name: told_in(tasks, priors, Choice((name,), None)) for name in priors} if tasks else {}


def told_by(one: Choice, other: Choice, *, fitting: Features, held: Features) -> bool:
    """Whether the one's composition tells classes that it has not seen better than the other's does."""
    names = tuple(dict.fromkeys((*one.priors, *other.priors)))
    tasks = unseen_tasks(names, fitting, held)
    return bool(tasks) and told_in(tasks, names, one) > told_in(tasks, names, other)


def told_in(tasks: Sequence[Task], names: Sequence[str], choice: Choice) -> float:
    """Mean AUROC of the choice's composition over tasks, whose energies have these names."""
    scores = [[composed_of(choice, names, task.real, e) for e in (task.real, task.other)] for task in tasks]
    return sum(auroc(real, other) for real, other in scores) / len(tasks)


def composed_of(choice: Choice, names: Sequence[str], real: Tensor, energies: Tensor) -> Tensor:
    """The choice's composition of energies, (n, K), whose names are given, standardised by those of ID samples."""
    columns = [names.index(name) for name in choice.priors]
    centre, spread = real[:, columns].mean(0), real[:, columns].std(0, correction=0).clamp(min=1e-12)
    weights = real.new_tensor(choice.weights or [1.0] * len(columns))
    inside = weights * real.new_tensor([name in choice.excess for name in choice.priors])
    standard = (energies[:, columns] - centre) / spread
    if not inside.any():
        return standard @ weights
    share = inside / inside.sum()
    bend = bend_of((real[:, columns] - centre) / spread @ share)
    return standard @ (weights - inside) + inside.sum() * excess_of(standard @ share, bend)


def unseen_tasks(priors: Sequence[str], fitting: Features, held: Features) -> list[Task]:
    """Classes that are left out, in groups; none where there are no labels or too few classes."""
    folds = folds_of(fitting)
    if not folds or fitting.labels is None:
        return []
    some = torch.arange(len(fitting))[:: math.ceil(len(fitting) / ENOUGH)]
    try:
        return left_out_tasks(priors, fitting.subset(some), held, folds, seed=0)
    except InputError:  # a class without samples
        return []
