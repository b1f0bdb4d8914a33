"""Every method on the CIFAR networks and images of the data folder, alone, and corrected by HEAT where it can be.

    python benchmarks/shared_methods.py [--nets cifar10 cifar100] [--seeds 0 1 2] [--save docs/results/methods.md]

The protocol is that of ``shared_data.py``: fit on 90 % of the training images (the seed draws which), evaluate on 8,000
test images against six OOD sets, every method with its default settings, none of which was chosen by these sets. Each
result is kept in --cache as it is made, so that an interrupted run goes on. odin and gram, which run the network, are
fitted to 10,000 of the training images, with the first seed alone. The ensemble is not here: there is one network a
data set.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from heat_ood import HEAT, Features, create, methods
from heat_ood.evaluation import Evaluation, evaluate_scores
from heat_ood.features import Array
from shared_data import OOD, OTHER, Loader, begin, extracted, images, networks, unlabelled

Scores = dict[str, torch.Tensor]
CORRECTED = ("gmm", "gmm-std", "energy", "dice", "react", "scale", "gen", "vim", "knn", "relative-gmm")
ON_IMAGES = ("odin", "gram")
WITH_DICE = ("gmm", "gmm-std", "dice")
FEW = 10_000


class Rows:
    """Some images of a set, in the order of their numbers, batch by batch."""

    def __init__(self, whole: Loader, rows: Array) -> None:
        self.whole, self.rows = whole, np.sort(np.asarray(rows))

    def __iter__(self) -> Iterator[object]:
        for i in range(0, len(self.rows), self.whole.size):
            yield self.whole.nets.normalise(self.whole.images[self.rows[i : i + self.whole.size]])


def split(n: int, seed: int) -> np.ndarray:
    """The 90 % of ``n`` training samples that are fitted to."""
    return np.sort(np.random.default_rng(seed).permutation(n)[n // 10 :])


def on_features(
    net: str, seed: int, sets: dict[str, Features]
) -> Iterator[tuple[str, Callable[[], dict[str, Scores]]]]:
    """What there is to compute: a name, and a function that gives the scores of one row or more."""
    train = sets["train"].subset(torch.from_numpy(split(len(sets["train"]), seed)))
    tests = {name: f for name, f in sets.items() if name != "train"}

    def alone(name: str) -> dict[str, Scores]:
        settings = {"seed": seed} if name in ("ebm", "residual-flow") else {}
        method = create(name, **settings).fit(train)
        return {name: {k: method.score(f) for k, f in tests.items()}}

    def corrected(name: str) -> dict[str, Scores]:
        detector = HEAT((name,), seed=seed).fit(sets["train"])
        terms = {k: detector.energies(f) for k, f in tests.items()}
        smooth = {f"{name}, smooth": {k: t[f"prior/{name}"] for k, t in terms.items()}} if name == "knn" else {}
        return smooth | {f"{name}, corrected": {k: t[f"hybrid/{name}"] for k, t in terms.items()}}

    def composed(title: str, detector: HEAT) -> dict[str, Scores]:
        detector.fit(sets["train"])
        return {title: {k: detector.score(f) for k, f in tests.items()}}

    for name, reads in methods().items():
        if name != "heat" and not {"inputs", "maps", "models"} & set(reads):
            yield name, lambda name=name: alone(name)
    for name in CORRECTED:
        yield f"{name}, corrected", lambda name=name: corrected(name)
    yield "plain composition", lambda: composed("plain composition", HEAT(residual=None, seed=seed))
    yield "HEAT", lambda: composed("HEAT", HEAT(seed=seed))
    plain = HEAT(WITH_DICE, residual=None, seed=seed)
    yield "plain composition with dice", lambda: composed("plain composition with dice", plain)
    yield "HEAT with dice", lambda: composed("HEAT with dice", HEAT(WITH_DICE, seed=seed))


def on_images(
    net: str, sets: dict[str, Features], cache: Path
) -> Iterator[tuple[str, Callable[[], dict[str, Scores]]]]:
    nets = networks()
    names = {"test": f"{net}_test", OTHER[net]: f"{OTHER[net]}_test", **{o: o for o in OOD}}

    def alone(name: str) -> dict[str, Scores]:
        whole = Loader(images(f"{net}_train", cache), nets)
        few = np.random.default_rng(0).permutation(len(whole.images))[:FEW]
        method = create(name).attach(nets.load(net)).fit(Rows(whole, few))
        loaders = {k: Loader(images(v, cache), nets) for k, v in names.items()}
        return {name: {k: method.score(Rows(x, np.arange(len(x.images)))) for k, x in loaders.items()}}

    for name in ON_IMAGES:
        yield name, lambda name=name: alone(name)


def evaluated(scores: Scores) -> Evaluation:
    test = np.random.default_rng(0).permutation(len(scores["test"]))[2000:]
    return evaluate_scores(scores["test"][test], {k: v for k, v in scores.items() if k != "test"}, intervals=False)


def run(net: str, seed: int, sets: dict[str, Features], cache: Path, first: bool) -> dict[str, Evaluation]:
    """All rows of one seed, computed or read back."""
    folder = cache / "methods" / net / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Evaluation] = {}
    jobs = [*on_features(net, seed, sets), *(on_images(net, sets, cache) if first else ())]
    for title, job in jobs:
        file = folder / f"{title}.json"
        if not file.exists():
            found = {row: evaluated(scores).to_dict() for row, scores in job().items()}
            file.write_text(json.dumps(found))
            print(f"{net}, seed {seed}: {title}", flush=True)
        rows |= {row: Evaluation.from_json(json.dumps(e)) for row, e in json.loads(file.read_text()).items()}
    return rows


def table(net: str, runs: list[dict[str, Evaluation]]) -> str:
    """FPR95 / AUROC by set, their average, that of the near sets, and the spread over seeds of the average."""
    names, near = next(iter(runs[0].values())).names, (OTHER[net], "tinyimagenet")
    lines = [f"| {net} | {' | '.join(names)} | average | near AUROC | ± |", "|---" * (len(names) + 4) + "|"]
    for row in runs[0]:
        found = [r[row] for r in runs if row in r]
        cells = [
            " / ".join(f"{100 * np.mean([getattr(e[s], m) for e in found]):.1f}" for m in ("fpr_at_95_id", "auroc"))
            for s in names
        ]
        fpr, auc = ([100 * getattr(e.average, m) for e in found] for m in ("fpr_at_95_id", "auroc"))
        cells += [f"**{np.mean(fpr):.2f} / {np.mean(auc):.2f}**"]
        cells += [f"{np.mean([100 * e[s].auroc for e in found for s in near]):.1f}"]
        cells += [f"{np.std(fpr):.2f} / {np.std(auc):.2f}" if len(found) > 1 else "one run"]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = begin("Every method on the networks and images of the data folder", __doc__)
    warnings.filterwarnings("ignore", message="The residual of")

    everything = {net: extracted(net, options.cache) for net in options.nets}
    bare = {net: {k: f if k == "train" else unlabelled(f) for k, f in sets.items()} for net, sets in everything.items()}
    runs: dict[str, list[dict[str, Evaluation]]] = {net: [] for net in options.nets}
    for seed in options.seeds:
        for net in options.nets:
            runs[net].append(run(net, seed, bare[net], options.cache, seed == options.seeds[0]))
    tables = [table(net, found) for net, found in runs.items()]
    print("\n\n".join(tables))
    if options.save:
        note = "FPR95 (share of OOD accepted when 95 % of ID is) ↓ / AUROC ↑, in %, "
        note += f"mean of seeds {options.seeds}, ± their spread; made by `python {' '.join(sys.argv)}`."
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(note + "\n\n" + "\n\n".join(tables) + "\n")
        results = {f"{net}/{s}": r for net, found in runs.items() for s, r in zip(options.seeds, found, strict=True)}
        text = json.dumps({k: {row: e.to_dict() for row, e in r.items()} for k, r in results.items()}, indent=1)
        options.save.with_suffix(".json").write_text(text)


if __name__ == "__main__":
    main()
