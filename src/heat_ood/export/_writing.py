"""From a guard to one file: traced, converted, compared with the guard, and only then written."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from ..energies import Energy, InputEnergy
from ..errors import Argument, HeatError, InputError
from ..features import Features, Guard, readable_graph
from ..files import write
from ..guarding import Judged, LiveJudge, columns_judged
from ..images import Preprocessing
from ._facts import Facts, Packed, Probed, packed
from ._graph import FromFeatures, FromPixels, Verdict, names_of_energies
from ._onnx import converted, described, needed
from ._opened import SUFFIXES, Exported
from ._probe import COUNT, EXACT, probe_pixels
from ._program import archived
from ._reducing import disagreement, reduced_model

__all__ = ["export"]

Floats = np.ndarray[Any, Any]
LARGEST = 2**28
"""Bytes of the largest detector that goes into a file: it is read whole by whoever opens it, and gone through whole for
every sample; 130,000 stored samples of 512 features."""
COARSE = 0.01
"""How far the scores of a file of less precision may be off elsewhere, at least, in spreads."""
TRACED = 2
"""Samples that a graph is traced with."""
WITHOUT = {
    "odin": "it needs the gradient of the model's output at its input, and a graph has none",
    "gram": "it reads the maps of a model before they are pooled, and goes through them class by class",
    "ensemble": "it reads several models, and a file holds one",
}


@dataclass(frozen=True)
class Traced:
    """A graph, and what is said of it."""

    program: torch.export.ExportedProgram
    facts: Facts


def export(
    guard: Guard | Energy,
    file: str | PathLike[str],
    *,
    fpr: float = 0.05,
    features: Features | None = None,
    preprocessing: Preprocessing | None = None,
    half: bool = False,
    quantise: bool = False,
    compare: tuple[Iterable[Floats], Iterable[Floats]] | None = None,
) -> Exported:
    """Write a guard, or a detector alone, as one file, and open it.

    Everything is in the graph: the normalisation of pixels, the model, the pooling of all layers, the detector, its
    calibration and the decision. What the file says of a few samples is compared with the guard before it is written.

    Args:
        guard: calibrated; or a detector without its model, whose file takes features.
        file: ``….onnx``, or ``….pt2`` for torch.
        fpr: the false-alarm rate of the decision where none is given to the graph.
        features: make a file that takes features: some of them, which show how wide each is and are kept as a probe.
        preprocessing: of images, where the guard does not know it, or not their size.
        half: keep the model's weights in float16, in half the space; they are computed with in float32.
        quantise: quantise the model's weights to 8 bits, and what flows through it as it flows.
        compare: ID and OOD pixels, in batches: what ``half`` and ``quantise`` change is measured on them, and kept.
    """
    path = Path(file)
    reduced = "quantised" if quantise else "half" if half else None
    check_wish(path, features is None, half and quantise, reduced, compare is not None)
    detector = guard.detector if isinstance(guard, Guard) else guard
    check(detector, fpr)
    if features is not None:
        made = from_features(detector, features, fpr)
    elif isinstance(guard, Guard):
        made = from_pixels(guard, preprocessing, fpr)
    else:
        raise InputError(
            "A detector without its model takes features, and does not know how wide they are. Pass some: ",
            Argument("features"),
            ".",
        )
    facts = made.facts
    if path.suffix == ".pt2":
        return written(path, archived(made.program, facts.to_json()))
    model = converted(made.program, [*(facts.columns or ["pixels"]), "fpr"], facts.outputs, fpr)
    if reduced is None or compare is None:
        return written(path, described(model, facts.to_json()))
    exact = checked(described(model, facts.to_json()), path)
    smaller = reduced_model(model, reduced)
    found = Exported.of(described(smaller, facts.to_json()), path)
    changes = disagreement(exact, found, reduced, fpr, *compare)
    probe = probed(found.judge(facts.samples()["pixels"]), max(COARSE, changes.usual))
    return written(path, described(smaller, replace(facts, probe=probe, reduced=changes).to_json()))


def check_wish(path: Path, whole: bool, both: bool, reduced: str | None, compare: bool) -> None:
    """Refuse what cannot be made, or not with what is installed."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} does not say what it is to be. Name a file that ends with .onnx or .pt2.")
    if both:
        raise InputError("A file is half or quantised, not both. Choose one.")
    if reduced and (not whole or path.suffix != ".onnx"):
        raise InputError("Only a model's weights in a .onnx file can be reduced. Leave out half and quantise.")
    if reduced and not compare:
        raise InputError(
            "A file of less precision says how far it is off, which takes images. Pass ", Argument("compare"), "."
        )
    for package in ("onnx", "onnxscript", "onnxruntime") if path.suffix == ".onnx" else ():
        needed(package)


def check(detector: Energy, fpr: float) -> None:
    """Refuse a detector that cannot be exported, before anything is computed."""
    for part in detector.modules():
        if isinstance(part, InputEnergy):
            why = WITHOUT.get(part.name, f"it reads {part.reads[0]}, not features")
            raise InputError(
                f"{part.name} cannot be exported: {why}. Let its guard judge in Python, or export a method that reads "
                "features: heat-ood methods lists them."
            )
    detector.require_fitted()
    detector.require_calibrated().check(fpr)
    if detector.device.type != "cpu":
        raise InputError(f"The detector is on {detector.device}. Move it, and its model, to the CPU to export it.")
    size = sum(t.numel() * t.element_size() for t in detector.state_dict().values())
    if size > LARGEST:
        raise InputError(
            f"{detector.name} cannot be exported: it keeps {size:,} bytes, and at most {LARGEST:,} go into a file, "
            "which is read whole by whoever opens it and gone through for every sample. Fit it with fewer stored "
            "samples (knn and nnguide take a limit), or choose a method that stores none."
        )


def from_features(detector: Energy, features: Features, fpr: float) -> Traced:
    """A detector alone."""
    columns, some = columns_judged(detector), features[:COUNT]
    if missing := [name for name in columns if name not in features.available]:
        raise InputError(f"{', '.join(missing)} is missing from {features!r}. Pass features that it can score.")
    probe = {name: torch.as_tensor(some.column(name)).float().numpy() for name in columns}
    tensors = {name: torch.from_numpy(values) for name, values in probe.items()}
    judge = LiveJudge(detector)
    live = judge.judge_features(probe)
    verdict = Verdict(detector, names_of_energies(detector, tensors), logits=False)
    example = [
        tensor.expand(TRACED, -1).clone() if len(tensor) < TRACED else tensor[:TRACED] for tensor in tensors.values()
    ]
    program = traced(FromFeatures(verdict, columns), example, len(columns), fpr, detector)
    facts = facts_of(judge, verdict, live, fpr)
    widths = tuple(values.shape[1] for values in probe.values())
    samples = packed(np.concatenate(list(probe.values()), 1), "<f4")
    return Traced(
        program,
        replace(
            facts,
            takes="features",
            columns=columns,
            widths=widths,
            probe=replace(facts.probe, samples=samples),
            preprocessing=None,
        ),
    )


def from_pixels(guard: Guard, preprocessing: Preprocessing | None, fpr: float) -> Traced:
    """A whole guard."""
    extractor, detector = guard.extractor, guard.detector
    guard.verify()
    if extractor.autocast is not None:
        raise InputError(
            f"The model computes in {extractor.autocast}, which no graph holds. Make the guard with an Extractor "
            "without autocast."
        )
    prepared = preprocessing_of(LiveJudge(guard), preprocessing)
    judge = LiveJudge(guard, prepared)
    assert prepared.size is not None
    pixels = probe_pixels(*prepared.size, len(prepared.mean))
    live = judge.judge(pixels)
    inputs = prepared.normalised(pixels)
    _, features = extractor.read(inputs)
    columns = columns_judged(detector)
    found = {name: tensor for name in columns if (tensor := features.column(name)) is not None}
    verdict = Verdict(detector, names_of_energies(detector, found), logits=live.logits is not None)
    with readable_graph(extractor, inputs[:TRACED], columns) as network:
        module = FromPixels(network, verdict, prepared)
        program = traced(module, torch.from_numpy(pixels[:TRACED]), 0, fpr, detector)
    return Traced(program, facts_of(judge, verdict, live, fpr))


def traced(module: nn.Module, example: Any, columns: int, fpr: float, detector: Energy) -> torch.export.ExportedProgram:
    """The graph of a module; an error that says what could not be followed."""
    rate, batch = torch.tensor(fpr, dtype=torch.float64), {0: torch.export.Dim("n")}
    dynamic: Any = [batch] * columns or batch
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module.eval(), (example, rate), dynamic_shapes=(dynamic, None), strict=False)
    except HeatError:
        raise
    except Exception as error:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        remedy = (
            "Export the detector alone, and let the model run where it is" if isinstance(module, FromPixels) else ""
        )
        remedy = remedy or "Let it judge in Python, or choose another method"
        raise InputError(f"{detector.name} cannot be made a graph: torch.export says {line!r}. {remedy}.") from error


def facts_of(judge: LiveJudge, verdict: Verdict, live: Judged, fpr: float) -> Facts:
    """What the file says of itself."""
    calibration = judge.detector.require_calibrated()
    about = {name: value for name, value in judge.about.items() if name != "versions"}
    return Facts(
        takes="pixels",
        columns=(),
        widths=(),
        outputs=verdict.outputs,
        energies=verdict.energies,
        fpr=fpr,
        classes=judge.classes,
        preprocessing=judge.preprocessing,
        about=about,
        calibration=Packed.of(calibration),
        probe=probed(live, EXACT),
        versions=versions(),
    )


def probed(said: Judged, tolerance: float) -> Probed:
    assert said.p_value is not None
    return Probed(tuple(said.score.astype(float).tolist()), tuple(said.p_value.tolist()), tolerance)


def versions() -> dict[str, str]:
    """Of what makes a file, as far as it is installed."""
    found = {"heat-ood": __version__, "torch": torch.__version__}
    for package in ("onnx", "onnxscript", "onnxruntime"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def preprocessing_of(judge: LiveJudge, given: Preprocessing | None) -> Preprocessing:
    """How images are prepared: as the guard saw them; what it does not know must be given."""
    known = judge.preprocessing
    found = given or known
    if found is None:
        raise InputError(
            "The guard does not know how images are prepared for its model. Pass ",
            Argument("preprocessing"),
            ": heat_ood.images.Preprocessing(size, mean, std).",
        )
    if known is not None and replace(found, size=known.size or found.size) != replace(
        known, size=known.size or found.size
    ):
        raise InputError(
            f"The guard was made with images that were prepared otherwise: {known}. Leave out ",
            Argument("preprocessing"),
            ".",
        )
    if known is not None and known.size is not None and found.size != known.size:
        raise InputError(
            f"The guard was made with images of another size: {known}. Leave out ", Argument("preprocessing"), "."
        )
    if found.size is None:
        raise InputError(
            "Images were left as large as they are, and a graph takes one size. Pass ",
            Argument("preprocessing"),
            " with a size.",
        )
    return found


def written(path: Path, content: bytes) -> Exported:
    """Write a file if, opened, it says of the probe what it should."""
    opened = checked(content, path)
    write(path, content)
    return opened


def checked(content: bytes, path: Path) -> Exported:
    """What a file will be, opened, if it says of the probe what it should."""
    opened = Exported.of(content, path)
    if wrong := opened.differences():
        raise InputError(
            f"The graph judges otherwise than the guard ({wrong[0]}), so it is not written. Export the detector "
            "alone, and let the model run where it is; or try the other kind of file (.onnx, .pt2)."
        )
    return opened
