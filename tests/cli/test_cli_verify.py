"""``heat-ood info --verify``, and features that images or interruptions would belie."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli_data import EXTRACT, Run
from heat_ood import Features
from heat_ood.features import Extractor
from store_data import make_earlier, same

pytestmark = pytest.mark.filterwarnings("ignore:The features in:heat_ood.errors.Notice")


def flip(file: Path, byte: int) -> None:
    data = bytearray(file.read_bytes())
    data[byte] ^= 1
    file.write_bytes(data)


def test_info_verifies_stored_features(run: Run, here: Path) -> None:
    Features(avg=np.random.default_rng(0).random((3000, 4), np.float32)).save(here / "f")
    assert run("info", "f", "--verify", "--json")["verified"] == "all of it"
    assert "verified" in run("info", "f", "--verify").stdout
    assert "verified" not in run("info", "f", "--json")
    flip(here / "f" / "avg.npy", 20_000)
    run("info", "f")
    error = run("info", "f", "--verify", code=1).stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert "avg.npy is damaged: its checksum does not match" in error
    assert "--overwrite" in error


def test_info_says_that_an_earlier_version_kept_no_checksums(run: Run, stores: Path) -> None:
    make_earlier(stores / "train")
    assert "no: it has no checksums" in run("info", "train", "--verify", "--json")["verified"]
    run("info", "train")


def test_info_verifies_detectors_always(run: Run, detector: Path) -> None:
    assert run("info", detector, "--verify", "--json")["verified"] == "all of it"
    assert run("info", detector, "--json")["verified"] == "all of it"


def test_info_on_a_pipe_does_not_wait(run: Run, stores: Path) -> None:
    (stores / "train" / "std.npy").unlink()
    os.mkfifo(stores / "train" / "std.npy")
    assert "std.npy is a pipe" in run("info", "train", code=1).stderr


def test_images_that_changed_are_extracted_again_only_when_asked(run: Run, pictures: Path) -> None:
    """The old features came back without a word."""
    command = (*EXTRACT, "--images", pictures, "--out", "f")
    run(*command)
    before = Features.open("f").avg.clone()
    picture = next(iter(sorted((pictures / "bee").iterdir())))
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(picture)
    error = run(*command, code=1).stderr
    assert "have changed since the features in f were made" in error
    assert "--overwrite" in error
    run(*command, "--overwrite")
    assert not before.equal(Features.open("f").avg)


def test_an_overwriting_run_that_fails_leaves_the_features_and_their_record(
    run: Run, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*EXTRACT, "--images", pictures, "--out", "f")
    run(*command)
    before, record = Features.open("f"), Path("f.json").read_text()

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Extractor, "forward", fail)
        run(*command, "--limit", 6, "--overwrite", code=130)
    assert same(Features.open("f", verify=True), before)
    assert Path("f.json").read_text() == record
    assert run("info", "f", "--json")["samples"] == 12
    run(*command, "--limit", 6, "--overwrite")
    assert json.loads(Path("f.json").read_text())["count"] == len(Features.open("f")) == 6
