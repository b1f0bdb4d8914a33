"""Mixed features as contrast, where there are no images to distort: does the residual learn anything from them?

    python experiments/ahead_mixed.py tasks|look [--seeds 0 1 2]

On the questions of experiments/text.py. Contrast is made of training embeddings of two classes: their *mean*, or
*swapped* channels (each from one or the other); HEAT's default without a residual, and with one of everything against
contrast. `tasks` prints AUROC for unseen classes (five of the known types left out of fit, head and contrast) and for
distorted sentences (the mean of five kinds); `look` the averages over the OOD sets and the near ones.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ahead import averages
from ahead_samples import head_of, opened, sentences
from heat_ood import HEAT, Features
from heat_ood.metrics import auroc

LEFT_OUT = 5


def mixed(train: Features, how: str, seed: int) -> Features:
    """As many samples as there are, each of two of different classes."""
    z, y, rng = torch.as_tensor(train.avg), torch.as_tensor(train.labels).numpy(), np.random.default_rng(seed)
    i, j = rng.integers(len(y), size=(2, 2 * len(y)))
    i, j = i[y[i] != y[j]], j[y[i] != y[j]]
    if how == "mean":
        return Features(avg=(z[i] + z[j]) / 2, head=train.head)
    chosen = torch.from_numpy(rng.random((len(i), z.shape[1])) < 0.5)
    return Features(avg=torch.where(chosen, z[i], z[j]), head=train.head)


def detectors(train: Features, seed: int) -> Mapping[str, HEAT]:
    return {
        "without a residual": HEAT(residual=None, seed=seed).fit(train, progress=False),
        "against means": HEAT(seed=seed).fit(train, contrast=mixed(train, "mean", seed), progress=False),
        "against swaps": HEAT(seed=seed).fit(train, contrast=mixed(train, "swapped", seed), progress=False),
    }


def by_tasks(seed: int) -> dict[str, tuple[float, ...]]:
    train = opened("text", seed).train
    labels, rng = torch.as_tensor(train.labels), np.random.default_rng(seed)
    aside = torch.from_numpy(rng.random(len(train)) < 0.2)
    classes = int(labels.max()) + 1
    unseen = torch.zeros(classes, dtype=torch.bool)
    unseen[torch.from_numpy(rng.choice(classes, LEFT_OUT, replace=False))] = True
    number = torch.cumsum(~unseen, 0) - 1
    avg = torch.as_tensor(train.avg)

    def part(rows: Tensor, head: tuple[Tensor, Tensor] | None = None) -> Features:
        return Features(avg=avg[rows], labels=number[labels[rows]], head=head)

    head = head_of(part(~aside & ~unseen[labels]), True)
    known = part(~aside & ~unseen[labels], head)
    held, other = part(aside & ~unseen[labels], head), Features(avg=avg[unseen[labels]], head=head)
    whole = head_of(part_of(train, ~aside), True)
    seen = part_of(train, ~aside, whole)
    found = {name: [auroc(*(d.score(f).numpy() for f in (held, other)))] for name, d in detectors(known, seed).items()}
    for name, detector in detectors(seen, seed).items():
        real = detector.score(part_of(train, aside, whole)).numpy()
        strange = [detector.score(Features(avg=z, head=whole)).numpy() for z in sentences(seed).values()]
        found[name].append(float(np.mean([auroc(real, one) for one in strange])))
    return {name: tuple(100 * value for value in row) for name, row in found.items()}


def part_of(train: Features, rows: Tensor, head: tuple[Tensor, Tensor] | None = None) -> Features:
    return Features(avg=torch.as_tensor(train.avg)[rows], labels=torch.as_tensor(train.labels)[rows], head=head)


def by_looks(seed: int) -> dict[str, tuple[float, ...]]:
    data = opened("text", seed)
    sets = {"test": data.test, **data.ood}
    return {
        name: averages("text", {k: d.score(f).numpy() for k, f in sets.items()})
        for name, d in detectors(data.train, seed).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tasks", "look"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [(by_tasks if options.what == "tasks" else by_looks)(seed) for seed in options.seeds]
    for name in rows[0]:
        print(f"| {name} | " + ", ".join(f"{value:.2f}" for value in np.mean([row[name] for row in rows], 0)) + " |")


if __name__ == "__main__":
    main()
