"""An exported file, opened: it judges as the guard that it was made of, without its model and without its code."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from .. import guarding
from ..energies import Calibration
from ..errors import Argument, FormatError, InputError
from ..files import read
from ..guarding import Judged
from ..images import Preprocessing
from ._facts import Facts
from ._onnx import LARGEST, OnnxEngine, standard
from ._probe import differences
from ._program import UNTRUSTED, ProgramEngine, description_in, opened_program

__all__ = ["SUFFIXES", "Exported", "facts_in", "is_exported", "load"]

Floats = np.ndarray[Any, Any]
SUFFIXES = (".onnx", ".pt2")


class Engine(Protocol):
    """What computes a graph."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]: ...


class Exported:
    """A file that :func:`export` wrote, opened: pixels or features in; logits, score and p-value out.

    It has what every judge has (``judge``, ``judge_features``, ``about``, ``preprocessing``, ``classes``,
    ``calibration``), and any number of threads may ask it at once.

    Args:
        path: a ``.onnx`` file, which onnxruntime computes, or a ``.pt2`` file, which torch computes.
        trust: open a ``.pt2`` file although that may run code which is in it.
        threads: how many onnxruntime computes with; None leaves it to onnxruntime.
    """

    def __init__(self, path: str | PathLike[str], *, trust: bool = False, threads: int | None = None) -> None:
        self.path = Path(path)
        program = self.path.suffix == ".pt2"
        if program and not trust:
            raise InputError(f"{self.path} {UNTRUSTED}", Argument("trust", True), ".")
        try:
            content = read(self.path, None if program else LARGEST)
        except FormatError as error:
            raise FormatError(f"{error} Pass a file that heat-ood export wrote.") from error
        self._open(content, program, threads)

    @classmethod
    def of(cls, content: bytes, path: Path) -> Exported:
        """A file that is not written yet, by its content; it is our own."""
        opened = cls.__new__(cls)
        opened.path = path
        opened._open(content, path.suffix == ".pt2", None)
        return opened

    def _open(self, content: bytes, program: bool, threads: int | None) -> None:
        self.engine: Engine
        if program:
            found, text = opened_program(content, self.path)
            self.facts = Facts.from_json(text, self.path)
            self.engine = ProgramEngine(found, self.facts.columns, self.facts.outputs, self.facts.fpr)
        else:
            self.facts = Facts.from_json(standard(content, self.path), self.path)
            self.engine = OnnxEngine(content, self.path, threads)
        wanted = self.facts.columns or ("pixels",)
        if (set(self.engine.inputs), self.engine.outputs) != (set(wanted), self.facts.outputs):
            raise FormatError(f"{self.path} is damaged: its graph is not the one that it describes. Export it again.")
        self.calibration: Calibration = self.facts.calibration.calibration()

    @property
    def about(self) -> Mapping[str, Any]:
        """What there is to know of the detector, and of the file."""
        facts = self.facts
        reduced = None if facts.reduced is None else vars(facts.reduced)
        return {
            **facts.about,
            "versions": dict(facts.versions),
            "takes": facts.takes,
            "fpr": facts.fpr,
            "runtime": "torch" if isinstance(self.engine, ProgramEngine) else "onnxruntime",
            "reduced": reduced,
        }

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How a decoded image becomes pixels; None where features are judged."""
        return self.facts.preprocessing

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, in order."""
        return self.facts.classes

    @property
    def columns(self) -> tuple[str, ...]:
        """The features that are judged, by name; none where images are."""
        return self.facts.columns

    def judge(self, pixels: Floats) -> Judged:
        """Judge images: (n, height, width, channels), uint8, resized and cropped, not normalised."""
        known = self.facts.preprocessing
        if known is None or known.size is None:
            raise InputError(f"{self.path} judges features, and images were given. Pass {', '.join(self.columns)}.")
        shape = (*known.size, len(known.mean))
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != shape:
            raise InputError(
                f"{self.path} takes pixels (n, {', '.join(map(str, shape))}) of uint8, not {pixels.shape} of "
                f"{pixels.dtype}. Resize and crop images with .preprocessing.pixels(image)."
            )
        return self._judged({"pixels": pixels}, len(pixels))

    def judge_features(self, columns: Mapping[str, Floats]) -> Judged:
        """Judge features: (n, width) of each column."""
        if not self.columns:
            raise InputError(f"{self.path} judges images, and features were given. Export the detector alone for them.")
        if missing := set(self.columns) - set(columns):
            raise InputError(f"{', '.join(sorted(missing))} is missing. Pass {', '.join(self.columns)}.")
        found = {name: np.asarray(columns[name], dtype=np.float32) for name in self.columns}
        count = len(next(iter(found.values())))
        for (name, column), width in zip(found.items(), self.facts.widths, strict=True):
            if column.shape != (count, width):
                raise InputError(f"{name} has the shape {column.shape}, not ({count}, {width}). Pass a row a sample.")
        return self._judged(found, count)

    def _judged(self, inputs: dict[str, Floats], count: int) -> Judged:
        if not count:
            raise InputError("There is no sample to judge. Pass at least one.")
        out = self.engine.run(inputs)
        if not np.isfinite(out["score"]).all():
            first = int(np.flatnonzero(~np.isfinite(out["score"]))[0])
            raise InputError(f"Sample {first} has no finite score. Leave it out, or check it for NaN and infinities.")
        parts = out.get("energies")
        energies = {} if parts is None else {name: parts[:, i] for i, name in enumerate(self.facts.energies)}
        return Judged(out.get("logits", inputs.get("logits")), out["score"], out["p_value"], energies)

    def verify(self) -> None:
        """Refuse a file that judges otherwise on this machine than where it was made, by a few samples."""
        wrong = self.differences()
        if wrong:
            raise FormatError(
                f"{self.path} judges otherwise here than where it was exported: {wrong[0]}. Export it again with the "
                "versions that are installed here."
            )

    def differences(self) -> list[str]:
        """What it says otherwise of the probe, in words."""
        probe = self.facts.samples()
        found = self.judge_features(probe) if self.columns else self.judge(probe["pixels"])
        expected = self.facts.probe
        scores, p_values = np.array(expected.scores), np.array(expected.p_values)
        return differences(found, scores, p_values, self.calibration, expected.tolerance)

    def __repr__(self) -> str:
        return f"Exported({str(self.path)!r}, takes={self.facts.takes!r}, method={self.facts.about.get('method')!r})"


def facts_in(path: str | PathLike[str]) -> Facts:
    """What a file says of itself; nothing of it is run, whatever its kind."""
    file = Path(path)
    content = read(file, LARGEST)
    return Facts.from_json((description_in if file.suffix == ".pt2" else standard)(content, file), file)


def is_exported(path: str | PathLike[str]) -> bool:
    """Whether a path is that of an exported file, by its name."""
    return Path(path).suffix in SUFFIXES and not Path(path).is_dir()


def load(path: str | PathLike[str], model: nn.Module | None = None, *, trust: bool = False) -> Any:
    """Open what was saved or exported: a detector, a guard with the model that it stands before, or one file.

    Args:
        path: a folder that ``detector.save`` or :func:`heat_ood.protect` wrote, or a file that ``heat-ood export``
            wrote, which is an :class:`~heat_ood.export.Exported`.
        model: the guard's model, where it was not named (``timm:…``, ``module:function``) when it was protected. It
            must have the weights that it had then.
        trust: open a ``.pt2`` file although that may run code which is in it.

    A saved detector needs no model. A named model is made again by its name: ``module:function`` runs your own code.
    """
    if not is_exported(path):
        return guarding.load(path, model)
    if model is not None:
        raise InputError(f"{path} has its model in it. Leave out ", Argument("model"), ".")
    return Exported(path, trust=trust)
