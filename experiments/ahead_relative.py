"""How well relative energies tell classes that are left out, by ID data alone: what HEAT's default is settled by.

    python experiments/ahead_relative.py [--suites shared-cifar10 …] [--seeds 0 1 2]

For each suite and seed the mean AUROC over the groups of classes of the last layer's relative energy and of that of all
layers side by side, and which of them, if any, `fit` takes. It reads the training features that `heat-ood benchmark`
and `backbone.py` keep, and no others.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=[name for name in SUITES if name != "text"], choices=SUITES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
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
