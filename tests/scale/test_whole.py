"""Extract, fit and score on two Ray nodes, one of them killed in the middle: to the bit what one process does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
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


def test_a_driver_that_is_killed_and_started_again_makes_the_same(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images(256)
    for number in range(4):
        call(*EXTRACT, "--out", "one", "--shard", f"{number}/4")
    call("merge", "one")
    Path("pause").touch()
    ray = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
    command = [sys.executable, "-m", "heat_ood", *map(str, (*EXTRACT, "--out", "many", "--shards", 4, *ray))]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while finished(Path("many")) < 1 and driver.poll() is None:
        time.sleep(0.02)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL  # it was still at work
    _, said = call(*EXTRACT, "--out", "many", "--shards", 4, *ray)
    assert "shards are done" in said or "shard is done" in said
    assert "4 shards are done" not in said  # what was finished is not done twice
    assert contents(Path("many")) == contents(Path("one"))


def test_an_image_that_is_corrupt_is_named_and_the_other_shards_finish(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pictures/a").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 16, 3), dtype=np.uint8)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture).save(f"pictures/a/{number:02}.png")
    sound = Path("pictures/a/09.png").read_bytes()
    Path("pictures/a/09.png").write_bytes(sound[:-40] + bytes(40))
    extract = (*EXTRACT[:5], "--images", "pictures", "--out", "many", "--shards", 4)
    ray = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
    ended = CliRunner().invoke(app, [*map(str, (*extract, *ray))])
    assert ended.exit_code == 1
    assert "1 of 4 shards failed" in " ".join(ended.output.split())
    assert "09.png" in ended.output
    assert finished(Path("many")) == 3
    Path("pictures/a/09.png").write_bytes(sound)
    _, said = call(*extract, *ray)
    assert "1 shard is done, 4 samples" in said
    assert len(Features.open("many")) == 16


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
