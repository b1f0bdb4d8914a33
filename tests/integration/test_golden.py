"""What earlier versions saved opens, and scores as it did then."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from heat_ood import Energy, Extractor, Features
from method_data import Case, images, network
from storage_data import VARIANTS

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
from make import machine  # noqa: E402

VERSIONS = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "about.json").is_file())
pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")


assert VERSIONS, "what earlier versions saved is gone"


def kept(kind: str) -> list[Any]:
    about = {version: json.loads((GOLDEN / version / "about.json").read_text()) for version in VERSIONS}
    return [
        pytest.param(version, name, id=f"{version}-{name}") for version in VERSIONS for name in about[version][kind]
    ]


def check(version: str, kind: str, name: str, energy: Energy, test: Any) -> None:
    """To the bit where the processor is the one that made them; else to what rounding can do."""
    about = json.loads((GOLDEN / version / "about.json").read_text())
    then = about[kind][name]
    score = energy.score(test)
    expected = torch.tensor(then["score"], dtype=torch.float64)
    assert str(score.dtype) == then["dtype"]
    if about["machine"] == machine() and torch.get_num_threads() == 1:
        assert torch.equal(score.double(), expected)
        # Version 0.1 compared scores to the last digit; up to the resolution, a p-value can only be larger.
        larger = energy.p_value(test) - torch.tensor(then["p_value"], dtype=torch.float64)
        assert float(larger.min()) >= 0
        assert float(larger.max()) <= 0.05
        assert float((larger > 0).double().mean()) <= 0.2
    else:
        spread = max(float(expected.std()), 1e-6)
        torch.testing.assert_close(score.double() / spread, expected / spread, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("version", "name"), kept("methods"))
def test_a_saved_method_scores_as_then(version: str, name: str) -> None:
    folder = GOLDEN / version
    energy = Case(name).attach(Energy.load(folder / "methods" / name))
    stored = Features.open(folder / "features" / "samples")
    check(version, "methods", name, energy, images(50, seed=2) if Case(name).beyond else stored)


@pytest.mark.parametrize(("version", "name"), kept("variants"))
def test_a_saved_variant_scores_as_then(version: str, name: str) -> None:
    folder = GOLDEN / version
    stored = Features.open(folder / "features" / "data")
    check(version, "variants", name, Energy.load(folder / "variants" / name), stored)


@pytest.mark.parametrize(("version", "name"), kept("methods"))
def test_a_fit_of_today_scores_as_then(version: str, name: str) -> None:
    """The same seed gives the same detector, from version to version."""
    case, then = Case(name), Energy.load(GOLDEN / version / "methods" / name)
    energy = case.attach(type(then)(**then.settings)).fit(case.data()).calibrate(case.data(100, seed=1))
    check(version, "methods", name, energy, case.data(50, seed=2))


@pytest.mark.parametrize(("version", "name"), kept("variants"))
def test_a_variant_of_today_scores_as_then(version: str, name: str) -> None:
    stored = Features.open(GOLDEN / version / "features" / "data")
    check(version, "variants", name, VARIANTS[name](), stored)


@pytest.mark.parametrize("version", VERSIONS)
def test_extracted_features_are_reused_and_interrupted_ones_go_on(version: str, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "features"
    shutil.copytree(GOLDEN / version / "features", folder)
    extractor = Extractor(network(), layers=("0",))
    x = images(24, seed=2)
    loader = [(x[i : i + 8], torch.arange(8) % 4) for i in range(0, 24, 8)]
    whole = extractor.extract(loader, folder / "extracted", progress=False)
    resumed = extractor.extract(loader, folder / "interrupted", progress=False)
    # what was there is of the processor that made it, what is added of this one
    same = json.loads((GOLDEN / version / "about.json").read_text())["machine"] == machine()
    torch.testing.assert_close(resumed.avg, whole.avg, rtol=0 if same else 1e-5, atol=0 if same else 1e-6)
    assert torch.equal(whole.labels, resumed.labels)
    contrast = extractor.contrast(loader, folder / "contrast", progress=False)
    torch.testing.assert_close(contrast.avg, extractor.contrast(loader, progress=False).avg)
