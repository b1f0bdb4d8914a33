"""Saved detectors: bit-equal in a fresh process, and replaced whole."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
import torch
from torch import Tensor

from heat_ood import HEAT, Energy, Features, FormatError, InputError, NotFittedError
from heat_ood.energies import Composition, Flat, FreeEnergy, GaussianMixture, MaximumSoftmax
from heat_ood.energies import _storage as storage
from storage_data import QUICK, VARIANTS, data, fitted, outcome

pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


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
assert not {"timm", "torch._dynamo"} & set(sys.modules), "what only some users need"
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
        assert (loaded.log, loaded.outcomes, loaded.priors_) == (energy.log, energy.outcomes, energy.priors_)
        assert (loaded.learns, loaded.residuals_) == (energy.learns, energy.residuals_)
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
    log = heat.hybrids_["gmm"].log_
    log.append({**log[-1], "loss": math.inf, "held_out_loss": math.nan})
    heat.save(tmp_path / "it")
    last = HEAT.load(tmp_path / "it").log["gmm"][-1]
    assert last["loss"] == math.inf
    assert math.isnan(last["held_out_loss"])


def test_load_wants_the_right_class(saved: Path) -> None:
    with pytest.raises(InputError, match=r"holds a HEAT, not a Flat\. Use HEAT\.load"):
        Flat.load(saved)
    assert isinstance(Energy.load(saved), HEAT)


def test_the_manifest_can_be_read_alone(saved: Path) -> None:
    manifest = storage.read_manifest(saved)
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
    strange = fitted(GaussianMixture())
    strange.seed = object()
    with pytest.raises(InputError, match="A setting of type object cannot be saved"):
        strange.save(tmp_path / "it")
    for unfitted in (HEAT(), GaussianMixture(), Flat(), FreeEnergy(), Composition({"gmm": GaussianMixture()})):
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
    write = storage.write

    def killed(file: Path, content: str | bytes, *, durable: bool) -> None:
        assert durable
        written.append(file)
        manifest = file.name == "detector.json"
        if stage == "before the tensors" or (stage == "between" and manifest):
            raise KeyboardInterrupt
        if (stage == "in the tensors" and not manifest) or (stage == "in the manifest" and manifest):
            data = content.encode() if isinstance(content, str) else content
            file.with_name(file.name + ".part").write_bytes(data[:100])
            raise KeyboardInterrupt
        write(file, content, durable=durable)
        if stage == "before clean-up" and manifest:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", killed)
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
        fitted(GaussianMixture()).save(copy)
    assert outcome(Energy.load(copy)) == old
