"""The demo: an honest split, the same result for the same seed, and all of its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

from heat_ood import HEAT, Extractor, evaluate
from heat_ood import demo as module
from heat_ood.benchmarks.digits import _FONTS, _LETTERS, KNOWN, _letters, _pairs, _patches, load_data, train
from heat_ood.cli import app
from heat_ood.demo import Result, run
from heat_ood.errors import InputError
from heat_ood.features._distortions import CONTRAST
from heat_ood.heat._choice import AGAINST_CONTRAST, AUTO

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")
QUICK = replace(AGAINST_CONTRAST, epochs=2, hidden=16)
PRIORS = ("energy", "relative-gmm-joint", "gmm-joint@stage2", "gmm-joint")


def test_the_split_holds_every_digit_once() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = load_data(0)
    parts = [data.train, data.calibration, data.test]
    together = torch.cat([images for images, _ in parts]).flatten(1).numpy() * 16
    assert len(together) == len(digits.data) == 1797
    assert np.array_equal(np.unique(together, axis=0), np.unique(digits.data, axis=0))
    assert all(set(labels.tolist()) == set(range(KNOWN)) for _, labels in parts)


def test_what_is_unknown_has_the_values_of_digits() -> None:
    data = load_data(0)
    for images in (data.train[0], *data.ood.values()):
        assert images.shape[1:] == (1, 8, 8)
        assert torch.equal((16 * images).round(), 16 * images)
        assert (float(images.min()), float(images.max())) == (0, 1)


def test_letters_are_made_as_the_digits_were() -> None:
    found = _letters()
    assert found.shape == (len(_FONTS) * len(_LETTERS), 8, 8) == (16 * 18, 8, 8)
    assert len(np.unique(found.reshape(len(found), -1), axis=0)) > 0.95 * len(found)  # no font stands in for another
    assert found[:, 0].any(1).all()
    assert found[:, 7].any(1).all()  # as high as the field
    assert not found[:, :, [0, 7]].any()  # and with its margins
    thin_l = found[_LETTERS.index("L")]
    assert thin_l[7].sum() > 3 * thin_l[0].sum()  # upright: the bar is at the bottom,
    assert thin_l[:, :4].sum() > thin_l[:, 4:].sum()  # the stem on the left


def test_pairs_hold_every_image_once_on_each_side() -> None:
    images = np.zeros((5, 8, 8))
    images[:, :, 1:7] = np.arange(2, 12, 2)[:, None, None]
    pairs = _pairs(images, np.random.default_rng(0))
    assert not pairs[:, :, [0, 7]].any()
    left, right = pairs[:, :, 1:4], pairs[:, :, 4:7]
    for side in (left, right):
        assert (side == side[:, :1, :1]).all()
        assert sorted(side[:, 0, 0]) == [2, 4, 6, 8, 10]
    assert (left[:, 0, 0] != right[:, 0, 0]).all()


def test_pairs_are_of_test_digits_alone() -> None:
    data = load_data(0)
    ink = 16 * data.test[0].squeeze(1).numpy()[:, :, 1:7]
    halves = {half.tobytes() for half in ink.reshape(-1, 8, 3, 2).mean(3).round()}
    pairs = 16 * data.ood["digit pairs"].squeeze(1).numpy()
    assert len(pairs) == len(ink)
    assert all(np.ascontiguousarray(half).tobytes() in halves for half in (*pairs[:, :, 1:4], *pairs[:, :, 4:7]))


def test_patches_cover_the_photographs() -> None:
    found = _patches()
    assert found.shape == (2 * 13 * 20, 8, 8)
    assert (found.min((1, 2)) == 0).all()
    assert (found.max((1, 2)) == 16).all()


def test_a_seed_gives_one_network_and_leaves_the_callers_generator_alone() -> None:
    data = load_data(0)
    before = torch.random.get_rng_state()
    one, other = (train(*data.train, seed=3, epochs=1) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of the whole demo, but for the length of the residual's training."""
    return run(tmp_path_factory.mktemp("demo"), say=lambda _: None, detector=HEAT(residual=QUICK))


def test_it_writes_everything(result: Result) -> None:
    assert result.accuracy > 0.95
    assert result.reloaded_equal
    assert list(result.evaluations) == [
        "MSP",
        *(f"prior {prior}" for prior in PRIORS),
        "priors composed, no residual",
        "HEAT",
    ]
    # calibration and test are a random split of the same samples: the rate differs from 5 % by chance alone
    assert result.false_alarms < 0.05 + 4 * (0.05 * 0.95 * (1 / 360 + 1 / 359)) ** 0.5
    assert {f.name for f in result.out.iterdir()} == set(module._FILES)
    stored = json.loads((result.out / "results.json").read_text())
    assert stored["evaluations"]["HEAT"]["average"]["auroc"] == result.evaluations["HEAT"].average.auroc
    assert stored["contrast"] == {"samples": 1078, "kinds": list(CONTRAST)}
    assert tuple(stored["used"]) == PRIORS
    text = (result.out / "results.md").read_text()
    assert "few samples: 1078" in text
    assert "HEAT uses energy (6), relative-gmm-joint (2), gmm-joint@stage2 (2), gmm-joint (2)" in text
    assert "1078 training images, each distorted in one of 13 ways" in text
    assert stored["flagged_by_msp"] == result.flagged_by_msp
    assert f"{100 * result.flagged_by_msp['letters']:.1f} % by MSP" in text
    assert (result.out / "scores.png").stat().st_size > 10_000


def test_the_same_again(result: Result, tmp_path: Path) -> None:
    said: list[str] = []
    threads = torch.get_num_threads()
    again = run(tmp_path / "demo", say=said.append, detector=HEAT(residual=QUICK))
    assert torch.get_num_threads() == threads
    assert len(said) == 4
    assert again.evaluations == result.evaluations


def test_it_is_as_by_hand(result: Result) -> None:
    """The network's stages, and contrast from the training images alone."""
    data = load_data(0)
    extractor = Extractor(train(*data.train), layers="stages")
    fitting, test = (extractor(list(part)) for part in (data.train, data.test))
    loader = DataLoader(TensorDataset(data.train[0]), batch_size=256)
    detector = HEAT(residual=QUICK).fit(fitting, extractor.contrast(loader))
    expected = evaluate(detector, test, extractor(data.ood["letters"]), intervals=False)
    assert result.evaluations["HEAT"]["letters"].auroc == pytest.approx(expected["ood"].auroc, abs=1e-4)
    plain = evaluate(HEAT(residual=None).fit(fitting), test, extractor(data.ood["letters"]), intervals=False)
    found = result.evaluations["priors composed, no residual"]["letters"]
    assert found.auroc == pytest.approx(plain["ood"].auroc, abs=1e-4)


def test_the_detector_is_the_librarys_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[HEAT] = []
    monkeypatch.setattr(module, "_run_in", lambda folder, seed, say, detector: given.append(detector))
    run(tmp_path / "demo", seed=3)
    assert (given[0].seed, given[0].priors, given[0].residual) == (3, None, AUTO)


def test_it_goes_over_what_a_kill_left(tmp_path: Path) -> None:
    for name in ("results.json.part", "scores.png"):
        (tmp_path / name).write_text("half")
    assert module._prepare(tmp_path) == tmp_path


def test_it_spares_a_folder_with_other_things(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="other things than a demo"):
        run(tmp_path)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command(tmp_path: Path, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = module._run_in
    monkeypatch.setattr(module, "_run_in", lambda folder, seed, say, _: quick(folder, seed, say, HEAT(residual=QUICK)))
    monkeypatch.setattr(module.digits, "train", lambda x, y, seed: train(x, y, seed=seed, epochs=2))
    arguments = ["demo", "--out", str(tmp_path / "demo"), "--seed", "1", *(["--json"] if as_json else [])]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "fitting HEAT" in result.stderr
    if as_json:
        assert json.loads(result.stdout)["seed"] == 1
    else:
        assert "priors composed, no residual" in result.stdout
        assert "scores are equal" in result.stdout
