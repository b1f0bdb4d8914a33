"""What goes into the file: a detector from features to decisions, and the model before it, as modules."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..energies import Composition, Energy
from ..features import Features
from ..heat import HEAT
from ..images import Preprocessing

__all__ = ["FromFeatures", "FromPixels", "Verdict", "names_of_energies"]


def names_of_energies(detector: Energy, columns: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The terms of a score by their names, without the score itself; other methods than HEAT have none."""
    if not isinstance(detector, HEAT):
        return ()
    with torch.no_grad():
        return tuple(name for name in detector.terms(Features.unchecked(columns)) if name != "score")


def plainly_named(detector: Energy) -> Energy:
    """A copy whose parts are numbered: torch.export takes ``gmm@1`` and a second ``gmm`` for the same name."""
    detector = copy.deepcopy(detector)
    for module in detector.modules():
        if isinstance(module, Composition):
            names = {name: f"part{i}" for i, name in enumerate(module.members)}
            module.parts = nn.ModuleDict(dict(zip(names.values(), module.parts.values(), strict=True)))
            module.excess = tuple(names[name] for name in module.excess)
    return detector


class Verdict(nn.Module):
    """From the columns of a batch to all that is said of it: a tensor for each of ``outputs``, in their order.

    Args:
        detector: fitted and calibrated.
        energies: the names of its terms.
        logits: whether to tell the logits: those that are given with the features are known already.
    """

    def __init__(self, detector: Energy, energies: Sequence[str], logits: bool) -> None:
        super().__init__()
        self.detector, self.energies = plainly_named(detector), tuple(energies)
        self.calibration = self.detector.require_calibrated()
        told = ["logits"] if logits else []
        self.outputs = (*told, "score", "p_value", "ood", *(["energies"] if energies else []))

    def forward(self, columns: Mapping[str, Tensor], logits: Tensor | None, fpr: Tensor) -> tuple[Tensor, ...]:
        features = Features.unchecked(columns)
        if isinstance(self.detector, HEAT):
            terms = self.detector.terms(features)
            score, parts = terms.pop("score"), torch.stack(list(terms.values()), 1)
        else:
            score, parts = self.detector.energy(features), None
        groups = logits.argmax(1) if self.calibration.per_class and logits is not None else None
        p_value = self.calibration(score, groups)
        found = {"logits": logits, "score": score, "p_value": p_value, "ood": p_value <= fpr, "energies": parts}
        return tuple(tensor for name in self.outputs if (tensor := found[name]) is not None)


class FromFeatures(nn.Module):
    """A detector alone: a column for each of its inputs, and the false-alarm rate."""

    def __init__(self, verdict: Verdict, columns: Sequence[str]) -> None:
        super().__init__()
        self.verdict, self.columns = verdict, tuple(columns)

    def forward(self, columns: Sequence[Tensor], fpr: Tensor) -> tuple[Tensor, ...]:
        found = dict(zip(self.columns, columns, strict=True))
        return self.verdict(found, found.get("logits"), fpr)  # type: ignore[no-any-return]


class FromPixels(nn.Module):
    """A whole guard: pixels (n, height, width, channels), uint8, as :meth:`Preprocessing.pixels` gives them."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, verdict: Verdict, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network, self.verdict = network, verdict
        self.register_buffer("mean", preprocessing.column(preprocessing.mean))
        self.register_buffer("std", preprocessing.column(preprocessing.std))

    def forward(self, pixels: Tensor, fpr: Tensor) -> tuple[Tensor, ...]:
        values = (pixels.to(torch.float32) / 255).permute(0, 3, 1, 2).contiguous()
        logits, columns = self.network((values - self.mean) / self.std)
        return self.verdict(columns, logits, fpr)  # type: ignore[no-any-return]
