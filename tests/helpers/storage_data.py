"""Detectors of every method to save, and ways to change what was saved."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from heat_ood import HEAT, Energy, Features, Residual, create
from heat_ood.energies import Composition, FreeEnergy, GaussianMixture, MaximumSoftmax
from heat_ood.energies import _storage as storage
from heat_ood.heat import _choice as recipe
from heat_ood.residual import Denoising, Hybrid

QUICK = Residual(epochs=1, hidden=8, depth=3, batch=64)
THREE = ("gmm", "gmm-std", "energy")


def data(n: int = 200, seed: int = 0, dtype: torch.dtype = torch.float32) -> Features:
    rng, y = np.random.default_rng(seed), np.arange(n) % 3
    avg, std, layer = (torch.from_numpy(rng.random((n, d)) + y[:, None] / 2).to(dtype) for d in (5, 4, 3))
    weight = torch.from_numpy(np.random.default_rng(9).standard_normal((3, 5)) + 3 * np.eye(3, 5)).to(dtype)
    head = (weight, torch.tensor([0.1, 0.2, 0.3], dtype=dtype))
    return Features(avg=avg, std=std, labels=y, head=head, layers={"a.b": (layer, layer.flip(1))}, fingerprint="model")


def fitted(energy: Energy, train: Features | None = None, per_class: bool = False) -> Energy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        energy.fit(data() if train is None else train)
    held = data(150, seed=1)
    dtype = (data() if train is None else train).columns[next(iter((data() if train is None else train).columns))].dtype
    return energy.calibrate(held.to(dtype), per_class=per_class)


def bare(*names: str, dtype: torch.dtype = torch.float32) -> Features:
    """Features that lack the rest; logits are stored, not computed."""
    full = data(dtype=dtype)
    columns = {name: full.column(name) for name in names}
    return Features(**columns, labels=full.labels, fingerprint="model")


def quick(**changes: Any) -> Residual:
    return Residual(**(QUICK.to_dict() | changes))


def default(contrast: Features | None = None) -> Energy:
    """HEAT as it is made where nothing is said, with quick residuals."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "AGAINST_CONTRAST", quick(joint=True, contrast_share=1.0))
        patch.setattr(recipe, "Residual", lambda: QUICK)
        heat = HEAT().fit(data(), contrast, progress=False)
    return heat.calibrate(data(150, seed=1))


VARIANTS: dict[str, Callable[[], Energy]] = {
    "heat": lambda: fitted(create("heat", priors=THREE, residual=QUICK)),
    "proposals": lambda: fitted(FreeEnergy(proposals=True)),
    "ebm": lambda: fitted(create("ebm", residual=quick(steps=2))),
    "ebm denoising": lambda: fitted(create("ebm", residual=Denoising(epochs=1, wells=8, batch=64))),
    "layer": lambda: fitted(create("gmm-joint@a.b", shrinkage=0.1, frequencies=True)),
    "clusters": lambda: fitted(GaussianMixture(normalise=False, clusters=4, seed=2)),
    "temperature": lambda: fitted(FreeEnergy(temperature=2.0)),
    "logits alone": lambda: fitted(FreeEnergy(), bare("logits")),
    "composition excess": lambda: fitted(
        Composition({"gmm@a.b": create("gmm@a.b"), "msp": MaximumSoftmax()}, excess=("gmm@a.b",))
    ),
    "composition": lambda: fitted(Composition({"gmm@a.b": create("gmm@a.b"), "msp": MaximumSoftmax()}, -1.0, (1, 2))),
    "hybrid": lambda: fitted(Hybrid(GaussianMixture(("std",)), QUICK, seed=5)),
    "heat one": lambda: fitted(HEAT(("gmm",), residual=QUICK)),
    "heat two": lambda: fitted(HEAT(["gmm", "gmm-std"], weights=[1.0, 2.0], residual=QUICK, beta=-1.0)),
    "heat default": lambda: default(),
    "heat contrast": lambda: default(data(100, seed=4)),
    "heat each": lambda: fitted(HEAT(residual=QUICK)),
    "heat plain": lambda: fitted(HEAT(THREE, residual=None, beta=math.inf, standardise="training")),
    "heat minimum": lambda: fitted(HEAT(THREE, residual=None, beta=-math.inf, weights=(1, 0, 2))),
    "heat mapping": lambda: fitted(
        HEAT(THREE, residual={"gmm": QUICK, "energy": None, "gmm-std": quick(tied=True, depth=5)})
    ),
    "heat joint": lambda: fitted(HEAT(THREE, residual=quick(joint=True))),
    "heat joint one": lambda: fitted(HEAT(("gmm",), residual=quick(joint=True))),
    "heat layers": lambda: fitted(HEAT(("gmm@a.b", "gmm-std@a.b", "gmm-joint", "ebm"), residual=QUICK)),
    "heat off": lambda: fitted(HEAT(THREE, residual=quick(lam=math.inf))),
    "heat chains": lambda: fitted(
        HEAT(THREE, residual=quick(steps=2, start="persistent", whiten=False, noise=(0.1, 0.01)))
    ),
    "heat energies": lambda: fitted(HEAT((GaussianMixture(clusters=2), FreeEnergy(2.0)), residual=QUICK)),
    "heat contrastive": lambda: fitted(HEAT(residual=QUICK), bare("avg", "std")),
    "heat logits": lambda: fitted(HEAT(residual=QUICK), bare("logits")),
    "heat embeddings": lambda: fitted(HEAT(residual=QUICK), Features(avg=data().avg, fingerprint="model")),
    "heat per class": lambda: fitted(HEAT(THREE, residual=QUICK), per_class=True),
    "heat numpy": lambda: fitted(HEAT(THREE, weights=np.array([1.0, 2.0, 3.0]), beta=np.float32(0.5), residual=None)),
    "heat double": lambda: fitted(HEAT(residual=QUICK), data(dtype=torch.float64)),
    "heat mixed": lambda: fitted(
        HEAT(residual=QUICK), Features(data(dtype=torch.float64).avg, data().std, labels=data().labels)
    ),
    "heat half": lambda: fitted(HEAT(residual=QUICK), data().to(torch.float16)),
}


def outcome(energy: Energy) -> tuple[bytes, bytes, str]:
    test = data(64, seed=2)
    return energy.score(test).numpy().tobytes(), energy.p_value(test).numpy().tobytes(), repr(energy)


def sign(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and give it a checksum that holds."""
    manifest = json.loads((folder / "detector.json").read_text())
    change(manifest)
    manifest["sha256"] = storage.digest_of(manifest)
    (folder / "detector.json").write_text(json.dumps(manifest))


def tensors_of(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    file = folder / json.loads((folder / "detector.json").read_text())["tensors"]["file"]
    return file, load_tensors(file.read_bytes())


def sign_tensors(folder: Path, content: dict[str, Tensor] | bytes) -> None:
    """Replace the tensors, checksums included."""
    import hashlib

    file, _ = tensors_of(folder)
    content = content if isinstance(content, bytes) else dump_tensors(content)
    file.write_bytes(content)

    def change(manifest: dict[str, Any]) -> None:
        manifest["tensors"]["sha256"] = hashlib.sha256(content).hexdigest()

    sign(folder, change)
