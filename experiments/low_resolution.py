"""Whether HEAT reads the resolution of an image: ImageNet's test images against copies of themselves at the scenes'.

    python experiments/low_resolution.py [--seeds 0 1 2] [--save docs/results/shared-imagenet/resolution.md]

The suite `shared-imagenet` has scenes that were photographed at 150 pixels, and ID images of some 375. Its data make
copies of the test images as if they had been, too (`low_resolution` of its `load.py`: down to 131 pixels, up to 224,
the same codec). What tells the copies from the originals is resolution alone: an AUROC of 50 does not see it.

For each score three numbers: copies against originals; scenes against originals, as in the benchmark; and scenes
against copies, where both have one resolution. What the last falls short of the second by, resolution may explain.
A network's own confidence falls with resolution, so that a little above 50 is no fault.

HEAT and its priors are fitted as in the benchmark, with its features; seeds are HEAT's. Nothing is chosen by these
numbers.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from heat_ood import HEAT, Extractor, Features, create
from heat_ood.benchmarks import suite
from heat_ood.benchmarks._prepare import prepare
from heat_ood.images import ImageSet
from heat_ood.metrics import auroc
from tables import header, save

SUITE = Path(__file__).parents[1] / "suites" / "shared-imagenet.toml"
SETS = ("copies", "scenes", "scenes against copies")
BASELINES = ("msp", "energy", "gmm", "knn")


class Copies(Dataset[Any]):
    """The images of a set at another resolution, prepared as the set's own."""

    def __init__(self, images: ImageSet, change: Any) -> None:
        self.images, self.change = images, change

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        pixels = np.asarray(self.images.read(self.images.rows[index]).convert("RGB"))
        return self.images.preprocessing(Image.fromarray(self.change(pixels[None])[0]))


def copies_of(images: ImageSet, extractor: Extractor, root: Path, folder: Path, batch_size: int) -> Features:
    """Features of the copies, kept in the cache; an interrupted extraction goes on."""
    spec = importlib.util.spec_from_file_location("heat_ood_shared_imagenet", root / "imagenet" / "load.py")
    assert spec is not None
    assert spec.loader is not None
    load = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load)
    loader = DataLoader(Copies(images, load.low_resolution), batch_size=batch_size)
    return extractor.extract(loader, folder / f"copies-{extractor.fingerprint[:12]}", description="copies")


def areas(score: Mapping[str, Tensor]) -> list[float]:
    """The three numbers of a score."""
    pairs = (("test", "copies"), ("test", "scenes"), ("copies", "scenes"))
    return [100 * float(auroc(score[a], score[b])) for a, b in pairs]


def rows_of(train: Features, contrast: Features | None, sets: Mapping[str, Features], seed: int) -> dict[str, Any]:
    """The numbers of every row, by name."""
    found = {}
    for name in BASELINES:
        method = create(name).fit(train)
        found[name] = areas({key: method.score(features) for key, features in sets.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        heat = HEAT(seed=seed).fit(train, contrast)
    terms = {key: heat.energies(features) for key, features in sets.items()}
    found["HEAT"] = areas({key: t["score"] for key, t in terms.items()})
    found["plain composition"] = areas({key: t["prior/joint"] for key, t in terms.items()})
    for name in heat.priors_:
        found[f"… {name}"] = areas({key: t[f"prior/{name}"] for key, t in terms.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data", type=Path, help="where the data lie; by default as the suite says")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("Whether HEAT reads resolution")

    described = suite(SUITE)
    ready = prepare(described, options.data, options.cache, say=print).data
    assert ready.extractor is not None
    folder = options.cache / described.name / "features"
    root = described.data_root(options.data)
    copies = copies_of(ready.images["test"], ready.extractor, root, folder, described.backbone.batch_size)
    sets = {"test": ready.test, "copies": copies, "scenes": ready.ood["scenes"]}
    runs = [rows_of(ready.train, ready.contrast, sets, seed) for seed in options.seeds]

    lines = [f"| AUROC, % | {' | '.join(SETS)} |", "|---|---:|---:|---:|"]
    for name in runs[0]:
        numbers = np.array([run[name] for run in runs])
        cells = [f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(numbers.mean(0), numbers.std(0), strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    body = f"Mean of seeds {options.seeds} ± their standard deviation.\n\n" + "\n".join(lines)
    print(f"\n{body}")
    if options.save:
        save(options.save, __doc__, body, dict(zip(options.seeds, runs, strict=True)))


if __name__ == "__main__":
    main()
