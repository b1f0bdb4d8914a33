"""HEAT on the CIFAR networks and images of the data folder: priors, corrected priors, compositions.

    python benchmarks/shared_data.py [--seeds 0 1 2] [--nets cifar10 cifar100] [--save docs/results/shared-data.md]

The protocol is the data folder's: fit on training images, 10 % of them held out by the seed; calibrate on 2,000 test
images; evaluate on the other 8,000 against six OOD sets, which nothing is chosen by. Features are extracted once into
--cache. CIFAR-10's images come from the data folder's ``fetch_cifar10.py``, which needs npm.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from common import header
from heat_ood import HEAT, Extractor, Features, create
from heat_ood.evaluation import Evaluation, evaluate_scores

DATA = Path(os.environ.get("HEAT_OOD_DATA", Path(__file__).parents[2] / "shared" / "data"))
OOD = ("tinyimagenet", "scenes", "clothing", "textures", "svhn")
OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}


def networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nets", DATA / "nets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def images(name: str, cache: Path) -> Path:
    if name.startswith("cifar10_"):
        return cache / f"{name}.npz"
    return DATA / f"{name}.npz" if name.startswith("cifar100_") else DATA / "ood" / f"{name}.npz"


class Loader:
    """Batches of normalised images, with labels where there are any, in a fixed order."""

    def __init__(self, path: Path, nets: ModuleType, size: int = 250) -> None:
        with np.load(path) as file:
            self.images, self.labels = file["images"], file.get("labels")
        self.nets, self.size = nets, size

    def __len__(self) -> int:
        return -(-len(self.images) // self.size)

    def __iter__(self) -> Iterator[object]:
        for i in range(0, len(self.images), self.size):
            x = self.nets.normalise(self.images[i : i + self.size])
            yield x if self.labels is None else (x, torch.from_numpy(self.labels[i : i + self.size]))


def extracted(net: str, cache: Path) -> dict[str, Features]:
    """The features of all sets by one network, from the cache if they are there."""
    nets = networks()
    extractor = Extractor(nets.load(net))
    names = {"train": f"{net}_train", "test": f"{net}_test", OTHER[net]: f"{OTHER[net]}_test", **{o: o for o in OOD}}
    return {
        k: extractor.extract(Loader(images(v, cache), nets), cache / net / k, description=f"{net} {k}")
        for k, v in names.items()
    }


def unlabelled(features: Features) -> Features:
    return Features(features.avg, features.std, head=features.head, fingerprint=features.fingerprint)


def run(net: str, seed: int, sets: dict[str, Features]) -> tuple[dict[str, Evaluation], float, float]:
    """All rows for one seed; the seconds of HEAT's fit; the false-alarm rate at 5 % after calibration."""
    order = np.random.default_rng(0).permutation(len(sets["test"]))
    calibration, test = sets["test"][order[:2000]], sets["test"][order[2000:]]
    ood = {name: unlabelled(f) for name, f in sets.items() if name not in ("train", "test")}
    start = time.perf_counter()
    heat = HEAT(seed=seed).fit(sets["train"])
    seconds = time.perf_counter() - start
    plain = HEAT(residual=None, seed=seed).fit(sets["train"])
    terms = {name: heat.energies(f) for name, f in {"id": test, **ood}.items()}

    rows = {"msp": {name: create("msp").score(f) for name, f in {"id": test, **ood}.items()}}
    for prior in heat.used:
        rows[prior] = {name: t[f"prior/{prior}"] for name, t in terms.items()}
        rows[f"{prior}, corrected"] = {name: t[f"hybrid/{prior}"] for name, t in terms.items()}
    rows["composition, no residual"] = {name: plain.score(f) for name, f in {"id": test, **ood}.items()}
    rows["HEAT"] = {name: t["score"] for name, t in terms.items()}
    evaluations = {
        row: evaluate_scores(scores["id"], {k: v for k, v in scores.items() if k != "id"}, intervals=False)
        for row, scores in rows.items()
    }
    alarms = float(heat.calibrate(calibration).predict(test, fpr=0.05).float().mean())
    return evaluations, seconds, alarms


def table(net: str, runs: list[dict[str, Evaluation]]) -> str:
    """FPR95 (95 % of ID accepted) / AUROC, mean over seeds, ± the spread of the average."""
    names = runs[0]["HEAT"].names
    lines = [f"| {net} | {' | '.join(names)} | average | near | ± |", "|---" * (len(names) + 4) + "|"]
    near = (OTHER[net], "tinyimagenet")
    for row in runs[0]:
        cells = [
            " / ".join(f"{100 * np.mean([getattr(r[row][s], m) for r in runs]):.1f}" for m in ("fpr_at_95_id", "auroc"))
            for s in names
        ]
        fpr = [100 * r[row].average.fpr_at_95_id for r in runs]
        auc = [100 * r[row].average.auroc for r in runs]
        close = np.mean([100 * r[row][s].auroc for r in runs for s in near])
        cells += [
            f"**{np.mean(fpr):.2f} / {np.mean(auc):.2f}**",
            f"{close:.1f}",
            f"{np.std(fpr):.2f} / {np.std(auc):.2f}",
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def begin(title: str, about: str | None) -> argparse.Namespace:
    """The options of a script on this data, its header, and CIFAR-10's images in the cache."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--nets", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    if not (DATA / "nets.py").exists():
        sys.exit(f"No data in {DATA}: set HEAT_OOD_DATA to the folder with nets.py.")
    header(title)
    subprocess.run([sys.executable, DATA / "fetch_cifar10.py", options.cache], check=True)
    return options


def main() -> None:
    options = begin("HEAT on the networks and images of the data folder", __doc__)

    tables, results = [], {}
    for net in options.nets:
        sets = extracted(net, options.cache)
        runs = []
        for seed in options.seeds:
            evaluations, seconds, alarms = run(net, seed, sets)
            runs.append(evaluations)
            print(
                f"{net}, seed {seed}: fit {seconds:.0f} s, false alarms {100 * alarms:.1f} % where 5 % are allowed",
                flush=True,
            )
            results[f"{net}/{seed}"] = {row: e.to_dict() for row, e in evaluations.items()}
        tables.append(table(net, runs))
        print(f"\nFPR95 (95 % of ID accepted) ↓ / AUROC ↑, mean of seeds {options.seeds}\n\n{tables[-1]}\n", flush=True)
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        command = f"`python {' '.join(sys.argv)}`"
        note = f"FPR95 (share of OOD accepted when 95 % of ID is) ↓ / AUROC ↑, in %, mean of seeds {options.seeds}"
        note += f"; made by {command}."
        options.save.write_text(note + "\n\n" + "\n\n".join(tables) + "\n")
        options.save.with_suffix(".json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
