"""The demo: an honest split, the same result for the same seed, and all of its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from heat_ood import HEAT, Residual
from heat_ood import demo as module
from heat_ood.cli import app
from heat_ood.demo import KNOWN, load_data, patches, run, train
from heat_ood.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")
QUICK = Residual(epochs=2, hidden=16)


def test_the_split_holds_every_known_digit_once() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    known = digits.images[digits.target < KNOWN]
    data = load_data(0)
    parts = [data.train, data.calibration, data.test]
    together = torch.cat([images for images, _ in parts]).flatten(1).numpy() * 16
    assert len(together) == len(known)
    assert np.array_equal(np.unique(together, axis=0), np.unique(known.reshape(len(known), -1), axis=0))
    assert all(set(labels.tolist()) == set(range(KNOWN)) for _, labels in parts)
    assert len(data.ood["digits 7–9"]) == len(digits.images) - len(known)


def test_what_is_unknown_has_the_values_of_digits() -> None:
    data = load_data(0)
    for images in (data.train[0], *data.ood.values()):
        assert images.shape[1:] == (1, 8, 8)
        assert torch.equal((16 * images).round(), 16 * images)
        assert (float(images.min()), float(images.max())) == (0, 1)


def test_patches_cover_the_photographs() -> None:
    found = patches()
    assert found.shape == (2 * 13 * 20, 8, 8)
    assert (found.min((1, 2)) == 0).all()
    assert (found.max((1, 2)) == 16).all()


def test_a_seed_gives_one_network_and_leaves_the_callers_generator_alone() -> None:
    data = load_data(0)
    before = torch.random.get_rng_state()
    one, other = (train(*data.train, seed=3, epochs=1) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_it_runs_and_writes_everything(tmp_path: Path) -> None:
    said: list[str] = []
    threads = torch.get_num_threads()
    result = run(tmp_path / "demo", say=said.append, detector=HEAT(residual=QUICK))
    assert torch.get_num_threads() == threads
    assert result.accuracy > 0.95
    assert result.reloaded_equal
    assert list(result.evaluations) == [
        "MSP",
        *(label for prior in HEAT().priors for label in (f"prior {prior}", f"  corrected {prior}")),
        "priors composed, no residual",
        "HEAT",
    ]
    # calibration and test are a random split of the same samples: the rate differs from 5 % by chance alone
    assert result.false_alarms < 0.05 + 4 * (0.05 * 0.95 * (1 / 253 + 1 / 253)) ** 0.5
    assert {f.name for f in (tmp_path / "demo").iterdir()} == set(module.FILES)
    stored = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert stored["evaluations"]["HEAT"]["average"]["auroc"] == result.evaluations["HEAT"].average.auroc
    assert "few samples: 758" in (tmp_path / "demo" / "results.md").read_text()
    assert (tmp_path / "demo" / "scores.png").stat().st_size > 10_000
    assert len(said) == 4

    again = run(tmp_path / "demo", say=said.append, detector=HEAT(residual=QUICK))
    assert again.evaluations == result.evaluations


def test_it_spares_a_folder_with_other_things(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="other things than a demo"):
        run(tmp_path)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command(tmp_path: Path, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = module.run_in
    monkeypatch.setattr(module, "run_in", lambda folder, seed, say, _: quick(folder, seed, say, HEAT(residual=QUICK)))
    monkeypatch.setattr(module, "train", lambda x, y, seed: train(x, y, seed=seed, epochs=2))
    arguments = ["demo", "--out", str(tmp_path / "demo"), "--seed", "1", *(["--json"] if as_json else [])]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "fitting HEAT" in result.stderr
    if as_json:
        assert json.loads(result.stdout)["seed"] == 1
    else:
        assert "priors composed, no residual" in result.stdout
        assert "scores are equal" in result.stdout
