"""Saved detectors whose checksums hold and whose content does not fit together."""

from __future__ import annotations

import json
import math
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from heat_ood import HEAT, Energy, FormatError, HeatError
from heat_ood.energies import _storage as storage
from heat_ood.heat import _choice as recipe
from storage_data import THREE, outcome, sign, sign_tensors, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


def test_unknown_classes_are_not_looked_up(copy: Path) -> None:
    for change in (
        lambda m: m["energy"].update({"$energy": "os.system"}),
        lambda m: m["energy"].update({"$energy": ["heat"]}),
        lambda m: m["energy"]["settings"]["residual"].update({"$value": "Popen"}),
        lambda m: m.update(energy={"$value": "Residual", "settings": {}}),
        lambda m: m.update(energy=None),
        lambda m: m["energy"]["settings"].update(unknown=1),
        lambda m: m["energy"]["settings"].update(self=1),
        lambda m: m["energy"]["settings"].update(priors=["gmm", "unknown", "energy"]),
        lambda m: m.update(fingerprint=5),
        lambda m: m.pop("facts"),
        lambda m: m.pop("calibration"),
        lambda m: m.update(calibration=None),
        lambda m: m["facts"].pop("inner"),
    ):
        before = (copy / "detector.json").read_bytes()
        sign(copy, change)
        with pytest.raises(FormatError, match="does not fit together"):
            HEAT.load(copy)
        (copy / "detector.json").write_bytes(before)
    HEAT.load(copy)


def test_a_network_of_absurd_size_is_not_built(copy: Path) -> None:
    for change in ({"hidden": 10**6}, {"depth": 10**9}, {"hidden": 10**30}):
        before = (copy / "detector.json").read_bytes()
        sign(copy, lambda m, change=change: m["energy"]["settings"]["residual"]["settings"].update(change))
        with pytest.raises(FormatError, match="does not fit together"):
            HEAT.load(copy)
        (copy / "detector.json").write_bytes(before)


def of_the_default(made: dict[str, Energy], folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The default with contrast, as files, with other facts on what it is made of."""
    made["heat contrast"].save(folder)

    def signed(manifest: dict[str, Any]) -> None:
        facts = dict(manifest["facts"][""]["$map"])
        change(facts)
        manifest["facts"][""] = {"$map": list(facts.items())}

    sign(folder, signed)
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["residual"]["settings"].update(hidden=10**6),
        lambda facts: facts["residual"]["settings"].update(depth=10**9),
        lambda facts: facts["residual"]["settings"].update(joint=False),
        lambda facts: facts.update(residual=None),
        lambda facts: facts.pop("residual"),
        lambda facts: facts.pop("weights"),
        lambda facts: facts.update(weights=facts["weights"][1:]),
        lambda facts: facts.update(weights=[-1, *facts["weights"][1:]]),
        lambda facts: facts.update(used=facts["used"][1:]),
        lambda facts: facts.update(used=[*facts["used"][:-1], "gnn"]),
        lambda facts: facts.update(used=[*facts["used"][:-1], "gmm-joint@elsewhere"]),
    ],
)
def test_a_default_made_of_something_else_is_refused(
    change: Callable[[dict[str, Any]], None], made: dict[str, Energy], tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match="does not fit together"):
        HEAT.load(of_the_default(made, tmp_path / "it", change))


def test_the_file_says_what_the_default_is_made_of(made: dict[str, Energy], tmp_path: Path) -> None:
    made["heat contrast"].save(tmp_path / "it")
    facts = dict(storage.read_manifest(tmp_path / "it")["facts"][""]["$map"])
    assert facts["used"] == ["energy", "gmm-joint@a.b", "gmm-joint"], "three classes do not support the relative one"
    half = recipe.FAMILY_WEIGHTS["densities"] / 2
    assert facts["weights"] == [recipe.FAMILY_WEIGHTS["energy"], half, half]
    assert facts["residual"]["settings"]["contrast_share"] == 1.0
    loaded = HEAT.load(tmp_path / "it")
    assert (loaded.priors, loaded.weights, loaded.residual) == (None, None, "auto")
    assert loaded.weights_ == tuple(facts["weights"])


def test_what_is_named_is_not_said_twice(saved: Path) -> None:
    facts = dict(storage.read_manifest(saved)["facts"][""]["$map"])
    assert facts == {"used": list(THREE), "weights": None, "residual": None}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(inner, (*path, key))


def test_settings_of_another_type_never_crash(copy: Path) -> None:
    """Whatever stands where in the manifest, loading and scoring give a number or one of our errors."""
    manifest = json.loads((copy / "detector.json").read_text())
    paths = [p for key in ("energy", "facts") for p in leaves(manifest[key], (key,))]
    assert len(paths) > 60
    rng = random.Random(0)
    values = [None, True, "x", -1, 0, 1e308, 10**40, [], [1, 2], {}, {"$float": "nan"}, {"$map": []}, {"$float": "x"}]
    values += [{"$list": 3}, {"$map": 3}, {"$energy": "msp", "settings": {}}, {"$value": "Residual", "settings": {}}]
    for path in paths:
        for value in rng.sample(values, 4):

            def change(m: dict[str, Any], path: tuple[Any, ...] = path, value: Any = value) -> None:
                m.update(json.loads(json.dumps(manifest)))
                at: Any = m
                for key in path[:-1]:
                    at = at[key]
                at[path[-1]] = value

            sign(copy, change)
            try:
                outcome(Energy.load(copy))
            except HeatError:
                continue
            except Exception as error:
                raise AssertionError(f"{path} = {value!r}: {type(error).__name__}: {error}") from error


CHANGES: dict[str, Callable[[Tensor], Tensor | None]] = {
    "missing": lambda t: None,
    "one more row": lambda t: torch.cat([t, t[-1:]]) if t.ndim else t.reshape(1),
    "one less row": lambda t: t[:-1] if t.ndim else t.reshape(1, 1),
    "one more dimension": lambda t: t[None],
    "empty": lambda t: t.reshape(-1)[:0],
    "not a number": lambda t: torch.full_like(t, math.nan) if t.is_floating_point() else t.double(),
    "integers": lambda t: t.nan_to_num(0, 0, 0).long() if t.is_floating_point() else t.bool(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["heat", "heat joint", "heat default", "heat contrast", "logits alone"])
def test_tensors_that_do_not_fit_are_refused(
    name: str, change: str, tmp_path: Path, saved: Path, made: dict[str, Energy]
) -> None:
    folder = tmp_path / "it"
    if name == "heat":
        shutil.copytree(saved, folder)
    else:
        made[name].save(folder)
    _, tensors = tensors_of(folder)
    for key, tensor in tensors.items():
        changed = CHANGES[change](tensor)
        if changed is not None and changed.dtype == tensor.dtype and not tensor.numel():
            continue  # it was empty before
        if key.endswith("norms") and change in ("one more row", "one less row", "empty"):
            continue  # any number of quantiles will do
        content = {k: v for k, v in tensors.items() if k != key} | ({} if changed is None else {key: changed})
        sign_tensors(folder, content)
        try:
            Energy.load(folder)
        except FormatError as error:
            accepted = None if "does not fit together" in str(error) else error
        else:
            accepted = key
        assert accepted is None, f"{key}: {change}"


def test_more_tensors_than_there_are_places(copy: Path) -> None:
    _, tensors = tensors_of(copy)
    sign_tensors(copy, tensors | {"inner.more": torch.zeros(3)})
    with pytest.raises(FormatError, match=r"tensors that no part of it knows: inner\.more"):
        HEAT.load(copy)


@pytest.mark.parametrize("content", [b"", b"x" * 100, (10**12).to_bytes(8, "little") + b"{}", pickle.dumps({"a": 1})])
def test_tensors_that_are_no_safetensors_file(content: bytes, copy: Path) -> None:
    sign_tensors(copy, content)
    with pytest.raises(FormatError, match="not a safetensors file"):
        HEAT.load(copy)


def test_a_calibration_that_is_not_in_order_is_refused(copy: Path) -> None:
    _, tensors = tensors_of(copy)
    sizes = tensors["calibration.offsets"]
    for scores, offsets in (
        (tensors["calibration.scores"].flip(0), sizes),
        (tensors["calibration.scores"], sizes.flip(0)),
        (tensors["calibration.scores"], sizes + 1),
        (tensors["calibration.scores"], torch.tensor([0, 0, *sizes[2:].tolist()])),
        (tensors["calibration.scores"], sizes[:1]),
    ):
        sign_tensors(copy, tensors | {"calibration.scores": scores.contiguous(), "calibration.offsets": offsets})
        with pytest.raises(FormatError, match="calibration"):
            HEAT.load(copy)


def test_nothing_is_unpickled(
    saved: Path, made: dict[str, Energy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle was called")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load"), (torch, "save")):
        monkeypatch.setattr(module, name, refuse)
    outcome(Energy.load(saved))
    made["heat joint"].save(tmp_path / "it")
    outcome(Energy.load(tmp_path / "it"))
