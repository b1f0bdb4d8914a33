"""The folder of a guard that is replaced by one of another model: a kill leaves the old one or the new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import heat_ood
from heat_ood import Extractor, FormatError, HeatError, create
from heat_ood.energies import Energy
from heat_ood.features import Guard
from heat_ood.guarding import _folder, _records

NETS = "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))\n"
X = torch.linspace(0, 1, 12).reshape(3, 4)


def made(seed: int) -> Guard:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
        sets = [[(torch.rand(40, 4), torch.arange(40) % 2)] for _ in range(2)]
    extractor = Extractor(model, name="nets_of_guards:net")
    train, held = (extractor.extract(one, progress=False) for one in sets)
    return extractor.guard(create("gmm").fit(train).calibrate(held))


def answer(guard: Guard) -> list[float]:
    return guard(X).score.tolist()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets_of_guards.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "it"


def killed_at(patch: pytest.MonkeyPatch, step: int) -> list[str]:
    """Let the step with this number, and all after it, not happen; the names of those that did."""
    done: list[str] = []

    def wrapped(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= step:
                raise KeyboardInterrupt
            done.append(name)
            return function(*args, **kwargs)

        return call

    patch.setattr(_records, "write", wrapped("record", _records.write))
    patch.setattr(_folder, "write_tensors", wrapped("weights", _folder.write_tensors))
    patch.setattr(Energy, "save", wrapped("detector", Energy.save))
    patch.setattr(_folder, "remove", wrapped("remove", _folder.remove))
    return done


@pytest.mark.parametrize("step", range(6))
def test_a_kill_leaves_the_old_guard_or_the_new_one(step: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = made(0), made(1)
    _folder.save(old, place, weights=True)
    with monkeypatch.context() as patch:
        done = killed_at(patch, step)
        if step < 5:
            with pytest.raises(KeyboardInterrupt):
                _folder.save(new, place, weights=True)
        else:
            _folder.save(new, place, weights=True)
            assert done == ["record", "weights", "detector", "remove", "record"]
    expected = new if "detector" in done else old
    assert answer(heat_ood.load(place)) == answer(expected)
    _folder.save(old, place, weights=True)
    assert answer(heat_ood.load(place)) == answer(old)
    names = sorted(file.name for file in place.iterdir())
    assert names[:2] == ["detector", "guard.json"]
    assert len(names) == 3, "the other weights are gone"


def test_a_guard_of_version_1_opens_and_is_replaced(place: Path) -> None:
    old = made(0)
    _folder.save(old, place, weights=True)
    content = json.loads((place / "guard.json").read_text())
    (record,) = content["models"].values()
    assert record["weights"] == "model.safetensors"
    first = {"format": content["format"], "version": 1, **record, "weights": True}
    (place / "guard.json").write_text(json.dumps(first))
    assert answer(heat_ood.load(place)) == answer(old)
    new = made(1)
    _folder.save(new, place, weights=True)
    assert answer(heat_ood.load(place)) == answer(new)
    assert not (place / "model.safetensors").exists()


@pytest.mark.parametrize("what", ["gone", "a link", "another's"])
def test_weights_that_are_not_there_are_said_to_be(what: str, place: Path) -> None:
    _folder.save(made(0), place, weights=True)
    file = place / "model.safetensors"
    moved = file.rename(place.parent / "moved")
    if what == "a link":
        file.symlink_to(moved)
    if what == "another's":
        _folder.save(made(1), place.parent / "other", weights=True)
        (place.parent / "other" / "model.safetensors").rename(file)
    with pytest.raises(HeatError, match="other weights of this model" if what == "another's" else "is missing, or no"):
        heat_ood.load(place)


def test_a_record_of_another_detector_is_refused(place: Path) -> None:
    _folder.save(made(0), place, weights=True)
    made(1).detector.save(place / "detector")
    with pytest.raises(FormatError, match="does not know the model of the detector beside it"):
        heat_ood.load(place)
