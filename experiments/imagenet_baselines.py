"""Our baselines beside those of the data's own README, which were written without this library.

    python experiments/imagenet_baselines.py [--save docs/results/shared-imagenet/baselines.md]

The suite `shared-imagenet` fits a method to 90 % of the 4,000 images; here it is all of them, as there. Features are
those of the benchmark. FPR95 (share of OOD accepted when 95 % of ID is) / AUROC, in %, averages over clothing, scenes
and textures.

The README does not say by what its within-class covariance is divided: here it is the number of samples n; the last row
is what n less the number of classes gives instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from heat_ood import Features, create, evaluate
from heat_ood.benchmarks import suite
from heat_ood.benchmarks._prepare import prepare
from tables import header, save

SUITE = Path(__file__).parents[1] / "suites" / "shared-imagenet.toml"
ROWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "MSP": ("msp", {}, "62.9 / 85.4"),
    "largest logit": ("max-logit", {}, "62.3 / 84.1"),
    "energy of the logits": ("energy", {}, "72.9 / 80.7"),
    "Mahalanobis": ("ssd", {}, "56.7 / 85.1"),
    "relative Mahalanobis": ("relative-gmm", {"hard": True}, "77.4 / 77.3"),
    "KNN, k = 1": ("knn", {"k": 1}, "64.9 / 78.9"),
    "KNN, k = 10": ("knn", {"k": 10}, "74.0 / 74.5"),
    "KNN, k = 50": ("knn", {"k": 50}, "77.3 / 71.4"),
}
"""A row of the README, the method that it is here with its settings, and what the README says."""


class Rescaled:
    """The relative distance with a covariance within classes that is divided by n - C: d_c² (n - C) / n - d_0²."""

    def __init__(self, train: Features) -> None:
        self.own, self.relative = create("ssd").fit(train), create("relative-gmm", hard=True).fit(train)
        self.lost = (train.classes or 1) / len(train)

    def score(self, features: Features) -> Tensor:
        return self.relative.score(features) - self.lost * self.own.score(features)


def rescaled(train: Features, test: Features, ood: Mapping[str, Features]) -> str:
    found = evaluate(Rescaled(train), test, ood, intervals=False).average
    numbers = f"{100 * found.fpr_at_95_id:.1f} / {100 * found.auroc:.1f}"
    return f"| relative Mahalanobis | the same, divided by n - C | {numbers} | {ROWS['relative Mahalanobis'][2]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="where the data lie; by default as the suite says")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("Our baselines beside those of the data's README")
    described = suite(SUITE)
    ready = prepare(described, options.data, options.cache, say=print).data
    counted = {name: ready.ood[name] for name in described.counted}

    lines = ["| | here | ours | README |", "|---|---|---:|---:|"]
    for title, (name, settings, told) in ROWS.items():
        found = evaluate(create(name, **settings).fit(ready.train), ready.test, counted, intervals=False).average
        how = "".join(f", `{key}={value}`" for key, value in settings.items())
        lines.append(f"| {title} | `{name}`{how} | {100 * found.fpr_at_95_id:.1f} / {100 * found.auroc:.1f} | {told} |")
    lines.append(rescaled(ready.train, ready.test, counted))
    body = "\n".join(lines)
    print(body)
    if options.save:
        save(options.save, __doc__, body, None)


if __name__ == "__main__":
    main()
