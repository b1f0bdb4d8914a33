"""What a guard costs beside its bare network, eager, compiled and as ONNX, as ratios within one run.

    python benchmarks/export.py [--repetitions 40] [--batches 1 8 64] [--threads 2] [--compiled]

ResNet-34 as timm makes it, 224 × 224, all stages, HEAT corrected against contrast: what ``protect`` makes. The bare
network in eager mode is what all ways are measured by: the guard in eager mode; the network and the guard as ONNX in
onnxruntime; and with ``--compiled`` the network by ``torch.compile``, the guard by ``torch.compile`` (its detector; the
network is read eagerly) and the guard's ``.pt2`` program by ``torch.compile``, which is all of it as one graph. Passes
alternate, so that what else the machine does meets all alike; the ratios are of medians. Pixels are normalised within
the graphs, and outside the clock for the rest. The weights are random and the detector is fitted to few images: what it
says does not matter here, what it costs does.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common import header
from guard import medians, resnet34
from heat_ood import HEAT, Extractor
from heat_ood.export import Exported, export
from heat_ood.features import Guard
from heat_ood.heat import AGAINST_CONTRAST
from heat_ood.images import Preprocessing

FITTED, HELD, BATCH = 200, 100, 20
PREPARED = Preprocessing(size=(224, 224))


def guarded(model: nn.Module) -> Guard:
    """All stages, HEAT corrected against contrast, fitted and calibrated."""
    random = np.random.RandomState(0)

    def loader(n: int) -> list[tuple[Tensor, Tensor]]:
        parts = [random.randint(0, 256, (BATCH, 224, 224, 3)).astype(np.uint8) for _ in range(0, n, BATCH)]
        return [(PREPARED.normalised(x), torch.arange(i * BATCH, (i + 1) * BATCH) % 10) for i, x in enumerate(parts)]

    extractor = Extractor(model, "stages")
    held = loader(HELD)
    fitting, calibration = (extractor.extract(part, progress=False) for part in (loader(FITTED), held))
    contrast = extractor.contrast(held, progress=False)
    detector = HEAT(residual=replace(AGAINST_CONTRAST, epochs=1)).fit(fitting, contrast, progress=False)
    return extractor.guard(detector.calibrate(calibration))


def bare_onnx(model: nn.Module, file: Path) -> None:
    """The network alone, as the converter makes it."""
    batch = {0: torch.export.Dim("n")}
    program = torch.export.export(model, (torch.rand(2, 3, 224, 224),), dynamic_shapes=(batch,))
    torch.onnx.export(program, (), str(file), dynamo=True, verbose=False, input_names=["x"], external_data=False)


def session(file: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as the guard has it
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def ways_of(
    model: nn.Module, guard: Guard, folder: Path, threads: int, compiled: bool
) -> dict[str, Callable[[Any], object]]:
    """All ways from a batch, as pixels and normalised, to an answer."""
    bare_onnx(model, folder / "bare.onnx")
    export(guard, folder / "guard.onnx", preprocessing=PREPARED)
    bare, whole = session(folder / "bare.onnx", threads), Exported(folder / "guard.onnx", threads=threads)

    @torch.inference_mode()
    def network(batch: Any) -> object:
        return model(batch[1])

    ways: dict[str, Callable[[Any], object]] = {
        "network, eager": network,
        "guard, eager": lambda batch: guard(batch[1]),
        "network, ONNX": lambda batch: bare.run(None, {"x": batch[2]}),
        "guard, ONNX": lambda batch: whole.judge(batch[0]),
    }
    if compiled:
        export(guard, folder / "guard.pt2", preprocessing=PREPARED)
        program = torch.compile(torch.export.load(folder / "guard.pt2").module(), dynamic=True)
        fast, rate = torch.compile(model, dynamic=True), torch.tensor(0.05, dtype=torch.float64)
        partly = torch.compile(guard)

        @torch.no_grad()
        def fast_network(batch: Any) -> object:
            return fast(batch[1])

        @torch.no_grad()
        def one_graph(batch: Any) -> object:
            return program(torch.from_numpy(batch[0]), rate)

        ways |= {
            "network, compiled": fast_network,
            "guard, compiled": lambda batch: partly(batch[1]),
            "guard.pt2, compiled": one_graph,
        }
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    header("A guard beside its bare network in eager mode: medians of passes, as ratios")
    model, _, _ = resnet34()
    guard = guarded(model)
    print("| batch | way | ms | by the bare network, eager |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ways = ways_of(model, guard, Path(folder), options.threads, options.compiled)
        for size in options.batches:
            pixels = np.random.RandomState(1).randint(0, 256, (size, 224, 224, 3)).astype(np.uint8)
            x = PREPARED.normalised(pixels)
            batch: Any = (pixels, x, x.numpy())
            found = medians(ways, batch, max(5, round(options.repetitions / size**0.5)))
            for name, seconds in found.items():
                ratio = seconds / found["network, eager"]
                print(f"| {size} | {name} | {1000 * seconds:.1f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
