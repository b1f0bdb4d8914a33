"""An exported file is served as the guard that it was made of: the same answers, and errors in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from heat_ood import Features
from heat_ood.export import export
from heat_ood.guarding import LiveJudge
from serving_data import Pictures, encoded

Ask = Callable[..., TestClient]
FILES = [("images", (f"{i}.png", encoded(p), "image/png")) for i, p in enumerate(Pictures(6, 7).pixels)]


def answered(client: TestClient) -> Any:
    found = client.post("/v1/score", files=FILES, params={"fpr": 0.1})
    assert found.status_code == 200, found.text
    return found.json()["results"]


def test_a_file_answers_as_its_guard_does(ask: Ask, judge: LiveJudge, tmp_path: Path) -> None:
    assert judge.guard is not None
    file = export(judge.guard, tmp_path / "guard.onnx")
    live, exported = answered(ask(judge)), answered(ask(file))
    for key in ("name", "ood", "verdict", "p_value"):
        assert [row[key] for row in exported] == [row[key] for row in live], key
    assert [row["class"]["name"] for row in exported] == [row["class"]["name"] for row in live]
    for a, b in zip(exported, live, strict=True):
        assert a["score"] == pytest.approx(b["score"], abs=1e-4)
        assert a["energies"] == pytest.approx(b["energies"], rel=1e-4, abs=1e-3)
        assert {t["name"]: t["value"] for t in a["terms"]} == pytest.approx(
            {t["name"]: t["value"] for t in b["terms"]}, abs=1e-4
        )


def test_it_tells_what_it_is(ask: Ask, judge: LiveJudge, tmp_path: Path) -> None:
    assert judge.guard is not None
    live, file = ask(judge).get("/v1/info").json(), ask(export(judge.guard, tmp_path / "guard.onnx"))
    told = file.get("/v1/info").json()
    for key in ("classes", "preprocessing", "calibration"):
        assert told[key] == live[key], key
    assert told["about"]["runtime"] == "onnxruntime"
    assert file.get("/v1/drift").json()["calibration_samples"] == 300


def test_features_of_another_width_are_a_word_not_a_failure(ask: Ask, judge: LiveJudge, tmp_path: Path) -> None:
    assert judge.guard is not None
    rng = np.random.default_rng(0)
    sizes = {"avg": 8, "std": 8, "logits": 3}
    columns = {name: rng.random((30, sizes[name.partition("@")[0]]), dtype=np.float32) for name in judge.columns}
    given = Features(**{name: columns[name] for name in columns})
    client = ask(export(judge.detector, tmp_path / "detector.onnx", features=given))
    good = {name: column[:2].tolist() for name, column in columns.items()}
    for features, code in ((good, 200), ({**good, "avg": [[1.0] * 5] * 2}, 422), ({"avg": good["avg"]}, 422)):
        body = json.dumps({"features": features})
        found = client.post("/v1/score", content=body, headers={"content-type": "application/json"})
        assert found.status_code == code, found.text
        assert "error" in found.json() or code == 200
