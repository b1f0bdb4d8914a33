"""Keep what this version saves, so that later ones are held to it: ``python tests/golden/make.py v0.1``.

Run it once, from the last commit of a version, before the next one changes anything. It writes a folder beside this
file: a detector of each method and of many settings, stored features, and what came of them.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "helpers"))
torch.set_num_threads(1)

import method_data  # noqa: E402
import storage_data  # noqa: E402
from heat_ood import Energy, Extractor, __version__  # noqa: E402


def machine() -> str:
    """Scores are equal to the bit on one kind of processor; on another they are rounded otherwise."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def found(energy: Energy, test: Any) -> dict[str, Any]:
    return {
        "score": energy.score(test).double().tolist(),
        "p_value": energy.p_value(test).tolist(),
        "dtype": str(energy.score(test).dtype),
    }


def main(version: str) -> None:
    folder = HERE / version
    shutil.rmtree(folder, ignore_errors=True)
    about: dict[str, Any] = {"version": __version__, "machine": machine(), "methods": {}, "variants": {}}

    for name in method_data.CASES:
        case = method_data.Case(name)
        energy = case.fitted().calibrate(case.data(100, seed=1))
        energy.save(folder / "methods" / name)
        about["methods"][name] = found(energy, case.data(50, seed=2))
    for name, make in storage_data.VARIANTS.items():
        energy = make()
        energy.save(folder / "variants" / name)
        about["variants"][name] = found(energy, storage_data.data(64, seed=2))

    method_data.samples(50, seed=2).save(folder / "features" / "samples")
    storage_data.data(64, seed=2).save(folder / "features" / "data")
    extractor = Extractor(method_data.network(), layers=("0",))
    images = method_data.images(24, seed=2)
    loader = [(images[i : i + 8], torch.arange(8) % 4) for i in range(0, 24, 8)]
    extractor.extract(loader, folder / "features" / "extracted", progress=False)
    extractor.contrast(loader, folder / "features" / "contrast", progress=False)
    kept = folder / "features" / "interrupted"

    def broken() -> Any:
        yield loader[0]
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        extractor.extract(broken(), kept, progress=False)
    (folder / "about.json").write_text(json.dumps(about) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
