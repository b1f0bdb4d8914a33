"""Saved detectors: bit-equal in a fresh process, and never trusted."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from heat_ood import (
    HEAT,
    Energy,
    Features,
    FormatError,
    HeatError,
    InputError,
    NotFittedError,
    Residual,
    create,
    recipe,
)
from heat_ood.energies import Composition, EnergyLogits, Flat, GaussianMixture, MaximumSoftmax, storage
from heat_ood.residual import Hybrid

QUICK = Residual(epochs=1, hidden=8, depth=3, batch=64)
THREE = ("gmm", "gmm-std", "energy")
pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


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
    "proposals": lambda: fitted(EnergyLogits(proposals=True)),
    "ebm": lambda: fitted(create("ebm", residual=quick(steps=2))),
    "layer": lambda: fitted(create("gmm-joint@a.b", shrinkage=0.1, frequencies=True)),
    "clusters": lambda: fitted(GaussianMixture(normalise=False, clusters=4, seed=2)),
    "temperature": lambda: fitted(EnergyLogits(temperature=2.0)),
    "logits alone": lambda: fitted(EnergyLogits(), bare("logits")),
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
    "heat energies": lambda: fitted(HEAT((GaussianMixture(clusters=2), EnergyLogits(2.0)), residual=QUICK)),
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


@pytest.fixture(scope="module")
def made() -> dict[str, Energy]:
    return {name: make() for name, make in VARIANTS.items()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One calibrated HEAT with residuals, as files."""
    folder = tmp_path_factory.mktemp("saved") / "detector"
    fitted(HEAT(THREE, residual=quick(steps=1)), per_class=True).save(folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"


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


# Round trips


SCRIPT = """
import hashlib, sys, json, torch
from pathlib import Path
from heat_ood import Energy, Features
root = Path(sys.argv[1])
found = {}
for folder in sorted((root / "detectors").iterdir()):
    energy = Energy.load(folder)
    test = Features.open(root / "test")
    parts = [energy.score(test).numpy().tobytes(), energy.p_value(test).numpy().tobytes()]
    again = root / "again" / folder.name
    energy.save(again)
    same = [(again / f.name).read_bytes() == f.read_bytes() for f in folder.iterdir()]
    found[folder.name] = [*(p.hex() for p in parts), repr(energy), all(same)]
assert "timm" not in sys.modules
print(json.dumps(found))
"""


def test_every_method_is_bit_equal_in_a_fresh_process(made: dict[str, Energy], tmp_path: Path) -> None:
    for name, energy in made.items():
        energy.save(tmp_path / "detectors" / name)
    data(64, seed=2).save(tmp_path / "test")
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | threads,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    found = json.loads(out.stdout)
    assert set(found) == set(VARIANTS)
    for name, energy in made.items():
        score, p_value, text = outcome(energy)
        assert found[name][0] == score.hex(), f"{name}: another score"
        assert found[name][1] == p_value.hex(), f"{name}: another p-value"
        if name != "heat numpy":  # an array comes back as a list
            assert found[name][2] == text, f"{name}: another repr"
        assert found[name][3], f"{name}: saved again, other files"


@pytest.mark.parametrize("name", VARIANTS)
def test_all_that_was_learned_comes_back(name: str, made: dict[str, Energy], tmp_path: Path) -> None:
    energy, test = made[name], data(20, seed=3)
    energy.save(tmp_path / "it")
    loaded = type(energy).load(tmp_path / "it")
    assert loaded.fingerprint == energy.fingerprint
    assert not loaded.training
    one, other = energy.state_dict(), loaded.state_dict()
    assert list(one) == list(other)
    for key in one:
        assert torch.equal(one[key], other[key]), key
        assert one[key].dtype == other[key].dtype, key
    assert loaded.reads == energy.reads
    if isinstance(energy, HEAT):
        assert isinstance(loaded, HEAT)
        assert (loaded.log, loaded.outcomes, loaded.used) == (energy.log, energy.outcomes, energy.used)
        assert (loaded.learns, loaded.corrected) == (energy.learns, energy.corrected)
        for term, value in energy.energies(test).items():
            assert torch.equal(loaded.energies(test)[term], value), term
    if energy.fingerprint is not None:
        other = Features(avg=test.avg, std=test.std, head=test.head, layers=test.layers, fingerprint="no")
        with pytest.raises(InputError, match="two different models"):
            loaded.score(other)


def test_a_loaded_detector_can_be_fitted_again(made: dict[str, Energy], tmp_path: Path) -> None:
    made["heat one"].save(tmp_path / "it")
    loaded = HEAT.load(tmp_path / "it").fit(data(), progress=False)
    assert torch.equal(loaded.score(data()), made["heat one"].score(data()))


def test_an_uncalibrated_detector_comes_back_uncalibrated(tmp_path: Path) -> None:
    GaussianMixture().fit(data()).save(tmp_path / "it")
    with pytest.raises(NotFittedError, match="not been calibrated"):
        GaussianMixture.load(tmp_path / "it").p_value(data())


def test_a_training_log_that_is_not_finite_is_kept(tmp_path: Path) -> None:
    heat = fitted(HEAT(("gmm",), residual=QUICK))
    assert isinstance(heat, HEAT)
    heat.hybrids()["gmm"].log.append({"loss": math.inf, "held_out_loss": math.nan})
    heat.save(tmp_path / "it")
    last = HEAT.load(tmp_path / "it").log["gmm"][-1]
    assert last["loss"] == math.inf
    assert math.isnan(last["held_out_loss"])


def test_load_wants_the_right_class(saved: Path) -> None:
    with pytest.raises(InputError, match=r"holds a HEAT, not a Flat\. Use HEAT\.load"):
        Flat.load(saved)
    assert isinstance(Energy.load(saved), HEAT)


def test_the_manifest_can_be_read_alone(saved: Path) -> None:
    manifest = storage.describe(saved)
    assert manifest["calibration"] == 150
    assert manifest["fingerprint"] == "model"


# Saving


class Own(Energy):
    """An energy that nobody registered."""

    name = "own"

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg",)

    def fit(self, features: Features) -> Self:
        return self

    def energy(self, features: Features) -> Tensor:
        return torch.zeros(len(features))


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    for energy in (Own(), Composition({"own": Own()}).fit(data())):
        with pytest.raises(InputError, match="Own cannot be saved"):
            energy.save(tmp_path / "it")
    with pytest.raises(InputError, match="A setting of type object cannot be saved"):
        fitted(GaussianMixture(seed=object(), clusters=None)).save(tmp_path / "it")
    for unfitted in (HEAT(), GaussianMixture(), Flat(), EnergyLogits(), Composition({"gmm": GaussianMixture()})):
        with pytest.raises(NotFittedError, match="cannot be saved"):
            unfitted.save(tmp_path / "it")


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    energy = fitted(MaximumSoftmax())
    foreign = {"notes": "notes.txt", "other": "detector.json", "tensors": "weights.safetensors"}
    for name, file in foreign.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
        with pytest.raises(InputError, match="not empty and holds no detector"):
            energy.save(tmp_path / name)
        assert [f.name for f in (tmp_path / name).iterdir()] == [file]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        energy.save(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    energy.save(tmp_path / "empty")
    energy.save(tmp_path / "new" / "deep")


def test_saving_over_a_detector_replaces_it(copy: Path) -> None:
    energy = fitted(GaussianMixture())
    energy.save(copy)
    assert outcome(Energy.load(copy)) == outcome(energy)
    assert len(list(copy.iterdir())) == 2


@pytest.mark.parametrize(
    "stage", ["before the tensors", "in the tensors", "between", "in the manifest", "before clean-up"]
)
@pytest.mark.parametrize("first", [False, True])
def test_a_killed_save_leaves_the_old_or_the_new(
    stage: str, first: bool, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "first" if first else copy
    old = None if first else outcome(Energy.load(folder))
    energy = fitted(GaussianMixture())
    written: list[Path] = []
    replace = storage.replace

    def killed(file: Path, content: bytes) -> None:
        written.append(file)
        manifest = file.name == "detector.json"
        if stage == "before the tensors" or (stage == "between" and manifest):
            raise KeyboardInterrupt
        if (stage == "in the tensors" and not manifest) or (stage == "in the manifest" and manifest):
            file.with_name(file.name + ".part").write_bytes(content[:100])
            raise KeyboardInterrupt
        replace(file, content)
        if stage == "before clean-up" and manifest:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            energy.save(folder)
    if stage == "before clean-up":
        assert outcome(Energy.load(folder)) == outcome(energy)
    elif first:
        with pytest.raises(FormatError):
            Energy.load(folder)
    else:
        assert outcome(Energy.load(folder)) == old
    energy.save(folder)
    assert outcome(Energy.load(folder)) == outcome(energy)
    assert len(list(folder.iterdir())) == 2, "nothing is left of the killed one"


def test_a_file_is_replaced_whole(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = outcome(Energy.load(copy))

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        storage.replace(copy / "detector.json", b"{}")
    assert outcome(Energy.load(copy)) == old


# Damage


def flip(rng: random.Random, content: bytes) -> bytes:
    out = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 4])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def swap(rng: random.Random, content: bytes) -> bytes:
    out = bytearray(content)
    i, j = rng.randrange(len(out)), rng.randrange(len(out))
    out[i], out[j] = out[j], out[i]
    return bytes(out)


def noise(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    size = rng.randrange(1, 64)
    return content[:start] + rng.randbytes(size) + content[start + rng.choice([0, size]) :]


def truncate(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def repeat(rng: random.Random, content: bytes) -> bytes:
    return content + content[rng.randrange(len(content)) :]


def drop(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randrange(1, 50) :]


def zero(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    size = min(rng.randrange(1, 4096), len(content) - start)
    return content[:start] + bytes(size) + content[start + size :]


def test_a_thousand_corruptions_are_errors_or_change_nothing(saved: Path, tmp_path: Path) -> None:
    rng, good = random.Random(0), {f.name: f.read_bytes() for f in saved.iterdir()}
    expected, folder = outcome(Energy.load(saved)), tmp_path / "bad"
    folder.mkdir()
    kinds, refused = [flip, swap, noise, truncate, repeat, drop, zero], 0
    manifest, tensors = sorted(good)
    for trial in range(1000):
        files = dict(good)
        match rng.randrange(10):
            case 0:
                del files[rng.choice(sorted(good))]
            case 1:
                files["copy of " + rng.choice(sorted(good))] = rng.randbytes(20)
            case 2:
                files[manifest], files[tensors] = rng.choice([(good[tensors], good[manifest]), (good[manifest],) * 2])
            case 3 | 4 | 5:
                files[tensors] = rng.choice(kinds)(rng, good[tensors])
            case _:
                files[manifest] = rng.choice(kinds)(rng, good[manifest])
        for name in set(good) | {f.name for f in folder.iterdir()}:
            (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        try:
            energy = Energy.load(folder)
        except FormatError:
            refused += 1
        else:
            assert outcome(energy) == expected, f"trial {trial}: silently different"
    assert 700 < refused < 1000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[]", "not a heat-ood detector"),
        (b"3", "not a heat-ood detector"),
        (b'{"format": "something else", "version": 1}', "not a heat-ood detector"),
        (b'{"format": "heat-ood detector"}', "version None"),
        (b'{"format": "heat-ood detector", "version": 0}', "version 0"),
        (b'{"format": "heat-ood detector", "version": 1}', "checksum does not match"),
        (b'{"format": "heat-ood detector", "version": 99}', "version 99; this heat-ood reads up to 1. Install a newer"),
        (b"[" * 500_000, "not JSON"),
        (
            b'{"format": "heat-ood detector", "version": 1, "x": ' + b"[" * 3000 + b"]" * 3000 + b"}",
            "not JSON|checksum",
        ),
        (b'{"format": "heat-ood detector", "version": 1, "x": ' + b"[" * 900 + b"]" * 900 + b"}", "not JSON|checksum"),
        (b'{"format": "heat-ood detector", "version": 1' + b"0" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_foreign_manifest(content: bytes, text: str, copy: Path) -> None:
    (copy / "detector.json").write_bytes(content)
    with pytest.raises(FormatError, match=text):
        Energy.load(copy)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such folder"):
        HEAT.load(tmp_path / "none")
    with pytest.raises(FormatError, match=r"has no detector\.json"):
        HEAT.load(tmp_path)


def test_a_newer_version_with_a_checksum_that_holds(copy: Path) -> None:
    sign(copy, lambda manifest: manifest.update(version=2))
    with pytest.raises(FormatError, match=r"format version 2.* Install a newer heat-ood"):
        HEAT.load(copy)


@pytest.mark.parametrize("where", ["..", "absolute", "below", "dots", "null", "long", "none", "number", "surrogate"])
def test_a_path_outside_the_folder_is_not_followed(where: str, copy: Path) -> None:
    file, _ = tensors_of(copy)
    target = copy.parent / file.name
    shutil.copy(file, target)
    (copy / "below").mkdir()
    shutil.copy(file, copy / "below" / file.name)
    name: Any = {
        "..": f"../{file.name}",
        "absolute": str(target),
        "below": f"below/{file.name}",
        "dots": "..",
        "null": f"{file.name}\0",
        "long": "a" * 5000,
        "none": None,
        "number": 7,
        "surrogate": "\ud800",
    }[where]
    sign(copy, lambda manifest: manifest["tensors"].update(file=name))
    with pytest.raises(FormatError, match=r"not one that \.save"):
        HEAT.load(copy)


@pytest.mark.parametrize("linked", ["tensors", "manifest"])
def test_links_are_not_followed(linked: str, copy: Path) -> None:
    file = tensors_of(copy)[0] if linked == "tensors" else copy / "detector.json"
    moved = file.rename(copy.parent / f"moved-{file.name}")
    file.symlink_to(moved)
    with pytest.raises(FormatError, match="link"):
        HEAT.load(copy)


# Content that does not fit together, with checksums that hold


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
    facts = dict(storage.describe(tmp_path / "it")["facts"][""]["$map"])
    assert facts["used"] == ["energy", "gmm-joint@a.b", "gmm-joint"], "three classes do not support the relative one"
    half = recipe.SHARES["densities"] / 2
    assert facts["weights"] == [recipe.SHARES["energy"], half, half]
    assert facts["residual"]["settings"]["contrast_share"] == 1.0
    loaded = HEAT.load(tmp_path / "it")
    assert (loaded.priors, loaded.weights, loaded.residual) == (None, None, "auto")
    assert loaded.shares == tuple(facts["weights"])


def test_what_is_named_is_not_said_twice(saved: Path) -> None:
    facts = dict(storage.describe(saved)["facts"][""]["$map"])
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
