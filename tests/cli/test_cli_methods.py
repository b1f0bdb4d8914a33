"""Every method that reads stored features, from the shell: fit, calibrate, score, evaluate, info."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heat_ood import Energy, methods
from heat_ood.cli import app
from method_data import BEYOND, samples

pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain
OPTIONS = {"heat": ["--epochs", "1"], "knn": ["--set", "k=5"], "residual-flow": ["--set", "epochs=1"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("features")
    for seed, name in enumerate(("train", "held", "test", "more")):
        samples(240 if name == "train" else 60, seed).save(root / name)
    return root


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", [n for n in methods() if n not in BEYOND])
def test_from_features_to_decisions(name: str, folder: Path, tmp_path: Path) -> None:
    detector = tmp_path / "detector"
    fitted = run("fit", folder / "train", "--method", name, "--out", detector, *OPTIONS.get(name, []))
    assert fitted["method"] == name
    assert run("calibrate", detector, folder / "held")["calibration"] == 60
    scored = run("score", detector, folder / "test")
    energy, test = Energy.load(detector), samples(60, 2)
    rows = scored["rows"]
    assert [row["score"] for row in rows] == pytest.approx(energy.score(test).tolist(), rel=1e-5)
    assert [row["p_value"] for row in rows] == pytest.approx(energy.p_value(test).tolist())
    found = run("evaluate", detector, "--id", folder / "test", "--ood", f"more={folder / 'more'}")
    assert 0 <= found["average"]["auroc"] <= 1
    assert run("info", detector)["settings"].keys() == energy.settings.keys()


def test_methods_lists_all_with_what_each_reads() -> None:
    listed = run("methods")
    assert {name: tuple(entry["reads"]) for name, entry in listed.items()} == methods()
    assert all(entry["summary"] for entry in listed.values())
