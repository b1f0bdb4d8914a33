"""Checkpoints: whole, of this fit and of these samples, or refused; and gone when the detector is saved."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save as dump_tensors
from safetensors.torch import save_file
from torch import Tensor

from heat_ood import HEAT, Features, FormatError, InputError, Residual
from heat_ood.files import digest_of_tensors, locked
from heat_ood.residual import Checkpoint
from heat_ood.residual._training import Training
from storage_data import data

pytestmark = [
    pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice"),
]
QUICK = Residual(epochs=3, hidden=8, depth=3, batch=64)


def fit(folder: Path, train: Features | None = None, **settings: Any) -> HEAT:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        heat = HEAT(("gmm",), **{"residual": QUICK, **settings})
        return heat.fit(data() if train is None else train, progress=False, checkpoint=folder)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a fit that was stopped after its second epoch."""
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "ckpt")
    return tmp_path / "ckpt" / "gmm.safetensors"


def stop_after(patch: pytest.MonkeyPatch, epochs: int) -> None:
    original = Training.one_epoch

    def interrupted(self: Training, report: Any) -> float:
        if len(self.epochs) == epochs:
            raise KeyboardInterrupt
        return original(self, report)

    patch.setattr(Training, "one_epoch", interrupted)


def same(one: HEAT, other: HEAT) -> bool:
    test = data(50, seed=3)
    return torch.equal(one.score(test), other.score(test))


# Damage


def flipped(rng: random.Random, content: bytes) -> bytes:
    out = bytearray(content)
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def swapped(rng: random.Random, content: bytes) -> bytes:
    out = bytearray(content)
    i, j = rng.randrange(len(out)), rng.randrange(len(out))
    out[i], out[j] = out[j], out[i]
    return bytes(out)


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def test_no_mutation_gives_another_detector(begun: Path, tmp_path: Path) -> None:
    whole, good, rng = fit(tmp_path / "whole"), begun.read_bytes(), random.Random(0)
    refused = 0
    for trial in range(120):
        begun.write_bytes(rng.choice([flipped, flipped, swapped, cut])(rng, good))
        try:
            resumed = fit(begun.parent)
        except (FormatError, InputError):
            refused += 1
        else:
            assert same(resumed, whole), f"trial {trial}: silently different"
    assert refused > 100
    begun.write_bytes(good)
    assert same(fit(begun.parent), whole)


def forged(file: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], Any]) -> None:
    """Change a checkpoint and give it a checksum that holds."""
    with safe_open(file, "pt") as opened:
        about = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    facts = json.loads(about["facts"])
    change(tensors, facts)
    about = {"version": about["version"], "identity": about["identity"], "facts": json.dumps(facts)}
    file.write_bytes(dump_tensors(tensors, about | {"sha256": digest_of_tensors(tensors, about)}))


FORGERIES: dict[str, Callable[[dict[str, Tensor], dict[str, Any]], Any]] = {
    "a tensor less": lambda t, f: t.pop("network.0"),
    "no generator": lambda t, f: t.pop("generator"),
    "a tensor more": lambda t, f: t.update({"adam.99.step": torch.zeros(())}),
    "a strange name": lambda t, f: t.update({"adam.x": torch.zeros(())}),
    "chains of nothing": lambda t, f: t.update(chains=torch.zeros(3, 3)),
    "another shape": lambda t, f: t.update({"best.0": torch.zeros(2, 2)}),
    "another type": lambda t, f: t.update({"network.0": t["network.0"].double()}),
    "another generator": lambda t, f: t.update(generator=torch.zeros(8, dtype=torch.uint8)),
    "a generator of noise": lambda t, f: t.update(generator=torch.full_like(t["generator"], 255)),
    "no steps": lambda t, f: t.update({"adam.0.step": torch.tensor(-1.0)}),
    "no epochs": lambda t, f: f.update(epochs=[]),
    "too many epochs": lambda t, f: f.update(epochs=f["epochs"] * 5),
    "epochs out of order": lambda t, f: f.update(epochs=f["epochs"][::-1]),
    "epochs of nothing": lambda t, f: f.update(epochs=[{"epoch": 1}]),
    "a number of epochs": lambda t, f: f.update(epochs=7),
    "no loss": lambda t, f: f.pop("best_loss"),
    "a loss in words": lambda t, f: f.update(best_loss="low"),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_checkpoint_of_another_content_is_refused(kind: str, begun: Path) -> None:
    forged(begun, FORGERIES[kind])
    with pytest.raises(FormatError, match=r"gmm\.safetensors is damaged .*Delete it to start this residual anew"):
        fit(begun.parent)


@pytest.mark.parametrize("facts", ["{x: 1}", '{"epochs": [1,', "7", "[" * 3000, None])
def test_what_is_no_json_is_refused(facts: str | None, begun: Path) -> None:
    with safe_open(begun, "pt") as opened:
        about = {key: opened.metadata()[key] for key in ("version", "identity")}
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    about |= {} if facts is None else {"facts": facts}
    begun.write_bytes(dump_tensors(tensors, about | {"sha256": digest_of_tensors(tensors, about)}))
    with pytest.raises(FormatError, match=r"gmm\.safetensors is damaged .*Delete it"):
        fit(begun.parent)


def test_a_forgery_that_changes_nothing_goes_on(begun: Path, tmp_path: Path) -> None:
    forged(begun, lambda t, f: None)
    assert same(fit(begun.parent), fit(tmp_path / "whole"))


def test_those_of_earlier_versions_are_refused_with_what_to_do(begun: Path) -> None:
    save_file({"network.0": torch.zeros(1)}, begun, {"identity": "x", "facts": "{}"})
    with pytest.raises(FormatError, match=r"of another version of heat-ood\. Delete it"):
        fit(begun.parent)


def test_numbers_that_json_has_not_come_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "it.safetensors", "run")
    checkpoint.save({"x": torch.zeros(2, 3)}, {"loss": float("nan"), "best": float("inf")})
    assert checkpoint.load() is not None
    assert checkpoint.load()[1] == {"loss": "nan", "best": "inf"}  # type: ignore[index]
    with pytest.raises(InputError, match="of a fit with other data or settings"):
        Checkpoint(tmp_path / "it.safetensors", "another").load()


# Which samples


@pytest.mark.parametrize("what", ["one row", "most rows", "one label", "the head"])
def test_every_sample_is_part_of_the_identity(what: str, begun: Path) -> None:
    """The rows that change are not among those that a look at 64 of them would see."""
    train = data()
    avg, labels, weight = train.avg.clone(), train.labels.clone(), train.head.weight.clone()
    every = max(1, len(train) // 64)
    seen = torch.arange(len(train)) % every == 0
    match what:
        case "one row":
            avg[1, 0] += 1e-4
        case "most rows":
            avg[~seen] = avg[~seen].flip(0)
        case "one label":
            labels[1] = (labels[1] + 1) % 3
        case "the head":
            weight[0, 0] += 1
    changed = Features(
        avg=avg, std=train.std, labels=labels, head=(weight, train.head.bias), layers=train.layers, fingerprint="model"
    )
    with pytest.raises(InputError, match="is of a fit with other data or settings"):
        fit(begun.parent, changed)


def test_samples_in_memory_and_on_the_disk_are_the_same(begun: Path, tmp_path: Path) -> None:
    data().save(tmp_path / "store")
    assert same(fit(begun.parent, Features.open(tmp_path / "store")), fit(tmp_path / "whole"))


# When they go


def test_they_stay_until_the_detector_is_saved(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heat = fit(begun.parent)
    assert begun.exists(), "till then, the fit is in memory alone"
    with monkeypatch.context() as patch:
        patch.setattr(Training, "one_epoch", None)
        again = fit(begun.parent)
    assert same(again, heat), "a kill before the save costs no epoch"
    heat.save(tmp_path / "it")
    assert not begun.parent.exists()
    heat.save(tmp_path / "it")


def test_a_folder_of_ones_own_and_what_is_in_it_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "notes.txt").write_text("mine")
    for name in ("mine", "shared", "made"):
        heat = fit(tmp_path / name)
        assert (tmp_path / name / "gmm.safetensors").exists()
        heat.save(tmp_path / "it")
    assert list((tmp_path / "mine").iterdir()) == []
    assert [file.name for file in (tmp_path / "shared").iterdir()] == ["notes.txt"]
    assert not (tmp_path / "made").exists()


def test_a_save_that_fails_leaves_them(begun: Path, tmp_path: Path) -> None:
    heat = fit(begun.parent)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        heat.save(tmp_path / "file")
    assert begun.exists()


def test_one_fit_a_folder_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path / "ckpt"), pytest.raises(InputError, match="Another process is writing to"):
        fit(tmp_path / "ckpt")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file is a file\. Name a folder for the checkpoints"):
        fit(tmp_path / "file")


def test_names_that_are_no_file_names(tmp_path: Path) -> None:
    """A layer can be called anything."""
    layer = "x/../" + "y" * 300
    full = data()
    train = Features(avg=full.avg, labels=full.labels, layers={layer: (full.avg, full.std)})
    heat = HEAT((f"gmm@{layer}",), residual=QUICK).fit(train, progress=False, checkpoint=tmp_path / "ckpt")
    (file,) = (tmp_path / "ckpt").iterdir()
    assert file.suffix == ".safetensors"
    heat.save(tmp_path / "it")
    assert not file.exists()
