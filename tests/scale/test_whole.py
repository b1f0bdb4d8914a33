"""Extract, fit and score on two Ray nodes, one of them killed in the middle: to the bit what one process does."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from heat_ood import HEAT, Features, InputError
from heat_ood.cli import app
from heat_ood.energies import Energy
from heat_ood.features import FEATURES_FILE, read_manifest
from heat_ood.scale import Engine, fit
from ray_nodes import Nodes

SHARDS = 8
EXTRACT = ("extract", "--model", "slow_network:network", "--batch-size", 16, "--images", "train.npz")
pytestmark = pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")


def call(*words: object) -> tuple[Any, str]:
    """``heat-ood`` in this process: what it prints as JSON, and what it notes."""
    ended = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout[ended.stdout.index("{") :]), ended.stderr


def images(n: int = 512) -> None:
    labels = np.arange(n) % 10
    pixels = np.random.default_rng(0).integers(0, 200, (n, 16, 16, 3)) + 5 * labels[:, None, None, None]
    np.savez("train.npz", images=pixels.astype(np.uint8), labels=labels)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def finished(folder: Path) -> int:
    found = (manifest.parent for manifest in folder.glob(f"shard-*/{FEATURES_FILE}"))
    return sum(read_manifest(shard).finished for shard in found)


def test_two_nodes_of_which_one_dies_make_the_same_as_one_process(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images()
    for number in range(SHARDS):
        call(*EXTRACT, "--out", "one", "--shard", f"{number}/{SHARDS}")
    call("merge", "one")
    plain, _ = call("fit", "one", "--out", "detector-one", "--no-residual")

    def kill() -> None:
        while finished(Path("many")) < 2:
            time.sleep(0.02)
        nodes.kill()

    Path("pause").touch()
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    ray = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
    _, said = call(*EXTRACT, "--out", "many", "--shards", SHARDS, *ray)
    thread.join()
    Path("pause").unlink()
    assert "shards are done, 512 samples" in said
    assert contents(Path("many")) == {k: v for k, v in contents(Path("one")).items() if not k.startswith("moments")}

    result, said = call("fit", "many", "--out", "detector-many", "--no-residual", *ray)
    assert result["samples"] == plain["samples"] == 512
    assert f"{SHARDS} shards are done" in said
    assert contents(Path("many")) == contents(Path("one"))  # moments among them
    assert any(name.startswith("moments") for name in contents(Path("many")))
    train = Features.open("one")
    one, many = (Energy.load(f"detector-{name}").score(train) for name in ("one", "many"))
    assert torch.equal(one, many)

    with np.load("train.npz") as whole:
        assert whole["images"].shape[0] == len(train)
    call(*EXTRACT, "--out", "plain")
    alone = HEAT(residual=None).fit(Features.open("plain"), progress=False).score(train)
    torch.testing.assert_close(many, alone, rtol=0, atol=1e-6)
    nodes.add()


def test_scores_by_shard_are_those_of_one_process(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pip install heat-ood[parquet]")
    monkeypatch.chdir(tmp_path)
    images(120)
    call(*EXTRACT, "--out", "train")
    HEAT(residual=None).fit(Features.open("train"), progress=False).save("detector")
    ray = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
    call("score", "detector", "train.npz", "--batch-size", 16, "--model", "slow_network:network", "--out", "scores",
         "--shards", 3, *ray)  # fmt: skip
    found = pyarrow.read_table("scores/scores.parquet")["score"].to_numpy()
    expected = Energy.load("detector").score(Features.open("train"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_only_stores_of_shards_are_fitted_by_workers() -> None:
    with pytest.raises(InputError, match="Workers fit whole stores of shards"):
        fit(HEAT(), Features(avg=torch.rand(30, 2)), Engine())
