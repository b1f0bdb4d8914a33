"""How well relative energies tell classes that are left out, by ID data alone: what HEAT's default is settled by.

    python experiments/ahead_relative.py [--suites shared-cifar10 …] [--seeds 0 1 2]
    python experiments/ahead_relative.py --compositions [--suites shared-cifar10 …]

For each suite and seed the mean AUROC over the groups of classes of the last layer's relative energy and of that of all
layers side by side, and which of them, if any, `fit` takes. With --compositions what `heat-ood compare` says, seed 0,
of compositions with either and with none. It reads the training features and the contrast that `heat-ood benchmark` and
`backbone.py` keep, and no others.
"""

from __future__ import annotations

import argparse
import warnings

import torch

from ahead_samples import CACHE, SUITES
from backbone import probe
from heat_ood import HEAT, Features
from heat_ood.heat import _choice as recipe
from heat_ood.heat import default_choice
from heat_ood.heat._choice import Choice
from heat_ood.selection import Comparison, Rule, compare


def training(name: str) -> Features:
    """The training features of a suite, with its head."""
    if name.startswith("backbone"):
        own, folder = name.removeprefix("backbone-"), CACHE / "backbone"
        train = Features.open(folder / f"{own}-train")
        layers = {key: (layer.avg, layer.std) for key, layer in train.layers.items()}
        head = probe(train, folder / f"{own}-head.npz")
        return Features(avg=train.avg, std=train.std, labels=train.labels, head=head, layers=layers)
    (found,) = (CACHE / name / "features").glob("train-*")
    return Features.open(found)


def contrast(name: str, train: Features) -> Features:
    """The distorted images of a suite."""
    if name.startswith("backbone"):
        found = Features.open(CACHE / "backbone" / f"{name.removeprefix('backbone-')}-contrast")
        return Features(found.avg, found.std, None, found.labels, train.head, found.layers, found.fingerprint)
    (folder,) = (CACHE / name / "features").glob("contrast-*")
    return Features.open(folder)


def compositions(name: str) -> Comparison:
    """Each judged by ID data: with the last layer's relative energy, with that of all layers, with none."""
    train = training(name)
    choice = default_choice(train)
    last = next(prior for prior in choice.priors if prior.startswith(recipe.RELATIVES))
    (wide,) = recipe.across(choice, train)
    densities = [prior for prior in choice.priors if prior.startswith("gmm")]
    names = ["energy", last, wide, *densities]

    def rule(relative: str | None, weight: float, bent: bool) -> Rule:
        priors = tuple(prior for prior in names if prior not in {last, wide} - {relative})
        weights = {"energy": 6.0, relative: weight, **dict.fromkeys(densities, 4 / len(densities))}
        found = Choice(priors, tuple(weights[prior] for prior in priors), excess=tuple(densities) if bent else ())
        return lambda given, real: lambda energies: recipe.composed_of(found, given, real, energies)

    rules = {
        "none, plain 6:0:4": rule(None, 0.0, False),
        "the last, plain 6:2:4": rule(last, 2.0, False),
        "the last, one-sided 6:4:4": rule(last, 4.0, True),
        "all, plain 6:2:4": rule(wide, 2.0, False),
        "all, plain 6:4:4": rule(wide, 4.0, False),
        "all, one-sided 6:4:4": rule(wide, 4.0, True),
    }
    return compare(train, contrast(name, train), priors=names, rules=rules)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=[name for name in SUITES if name != "text"], choices=SUITES)
    parser.add_argument("--compositions", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.suites if options.compositions else ():
        print(f"{name}\n{compositions(name)}", flush=True)
    if options.compositions:
        return
    print("| suite | seed | the last layer | all layers | taken |\n|---|---|---|---|---|")
    for name in options.suites:
        train = training(name)
        for seed in options.seeds:
            fitting, held = HEAT(seed=seed).split(train)
            choice = default_choice(train)
            last = next(prior for prior in choice.priors if prior.startswith(recipe.RELATIVES))
            names = [last, *recipe.across(choice, fitting)]
            told = recipe.unseen_told(names, fitting, held)
            taken = [p for p in recipe.supported(choice, fitting, held).priors if p.startswith(recipe.RELATIVES)]
            cells = [f"{100 * told[prior]:.2f}" for prior in names]
            which = "none" if not taken else "the last" if taken[0] == last else "all"
            print(f"| {name} | {seed} | {' | '.join(cells)} | {which} |", flush=True)


if __name__ == "__main__":
    main()
