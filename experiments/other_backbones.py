"""One table of what HEAT does on other backbones and with DICE, from the results of the suites' variants.

    python experiments/other_backbones.py [--save docs/results/other-backbones.md]

CIFAR-10 (and CIFAR-100 for DICE) against the six OOD sets of the shared data, with the seeds of the
detectors that stand above each table; each network was trained once. All are small, as their titles
say (the shared network has 3.1 million parameters): the paper's are a ViT-B/16 at 384 pixels, a
supervised-contrastive ResNet-50 and a ResNet-50, all on ImageNet, so that its numbers cannot be
compared with these. The contrastive network is the shared one, frozen, with a projection trained by
the supervised-contrastive loss in place of its head: gmm reads the projection, gmm-std the maps
before it, which cross-entropy trained. It has no logits, so no energy. "paper's priors, corrected"
has one residual a prior with the library's settings and no contrast; HEAT reads earlier layers and
contrast, and the plain composition is HEAT without its residual. Nothing was chosen by these
numbers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heat_ood.results import Results, percent
from tables import header, save

ROOT = Path(__file__).parents[1] / "docs" / "results"
RUNS = ("shared-cifar10/vit", "shared-cifar10/contrastive", "shared-cifar10/dice", "shared-cifar100/dice")
METRICS = ("fpr_at_95_id", "auroc")


def cell(results: Results, name: str, sets: tuple[str, ...] | None, spread: bool = False) -> str:
    """FPR95 / AUROC of a row, averaged over sets and seeds."""
    row = next(entry for entry in results.measured if entry.name == name)
    texts = []
    for metric in METRICS:
        mean = results.mean(row, metric, sets)
        known = spread and mean.spread == mean.spread
        texts.append(percent(mean.mean) + (f" ± {100 * mean.spread:.1f}" if known else ""))
    return " / ".join(texts)


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def table(results: Results) -> str:
    """A row for each method, from the worst average AUROC to the best; the network stands on top."""
    right = results.about["model"].get("accuracy")
    known = f", {percent(right)} % of the test images that evaluate right" if right else ""
    seeds = listed(tuple(map(str, results.seeds)))
    head = f"**{results.id}, {results.backbone}**{known}; seeds {seeds}.\n\n    {results.about['command']}"
    groups = results.groups
    lines = [
        f"{head}\n",
        f"| | average | {' | '.join(f'{group}: {listed(sets)}' for group, sets in groups.items())} |",
        "|---|" + "---:|" * (len(groups) + 1),
    ]
    for entry in reversed(results.ranked("auroc")):
        cells = [cell(results, entry.name, None, spread=True), *(cell(results, entry.name, s) for s in groups.values())]
        lines.append(f"| {entry.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("HEAT on other backbones, and with DICE")
    found = {name: Results.load(file) for name in RUNS if (file := ROOT / name / "results.json").is_file()}
    if not found:
        sys.exit(f"There are no results in {ROOT}. docs/benchmarks.md has the commands.")
    title = "FPR95 (share of OOD accepted when 95 % of ID is) ↓ / AUROC ↑ in percent, mean of seeds ± their spread."
    gaps = [f"Not run to its end yet: {name}." for name in RUNS if name not in found]
    body = "\n\n".join([title, *map(table, found.values()), *gaps])
    print(body)
    if options.save:
        numbers = {
            name: {e.name: {m: round(r.mean(e, m).mean, 5) for m in METRICS} for e in r.measured}
            for name, r in found.items()
        }
        save(options.save, __doc__, body, numbers)


if __name__ == "__main__":
    main()
