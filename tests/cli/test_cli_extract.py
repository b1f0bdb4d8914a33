"""``heat-ood extract``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli_data import EXTRACT, Run
from heat_ood import Features

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")


def test_extract_from_class_folders(run: Run, pictures: Path) -> None:
    result = run(*EXTRACT, "--images", pictures, "--out", "features/pictures", "--json")
    assert result["samples"] == 12
    assert result["classes"] == ["ant", "bee", "cat"]
    assert result["columns"] == {"avg": 8, "std": 8, "logits": 3}
    stored = Features.open("features/pictures")
    assert stored.labels is not None
    assert stored.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    record = json.loads(Path("features/pictures.json").read_text())
    assert record["files"][4] == "bee/0.png"
    assert record["classes"] == ["ant", "bee", "cat"]


def test_the_record_beside_a_store_is_that_of_earlier_versions(run: Run, pictures: Path) -> None:
    run(*EXTRACT, "--images", pictures, "--out", "f")
    text = Path("f.json").read_text(encoding="utf-8")
    assert text.startswith('{\n "format": "heat-ood images",\n "version": 1,\n "model": "tiny_model_of_cli:small",\n')
    assert not list(Path().rglob("*.part"))


def test_extract_shows_a_table_and_what_it_does_to_images(run: Run, pictures: Path) -> None:
    result = run(*EXTRACT, "--images", pictures, "--out", "f", "--mean", "0.5,0.5,0.5", "--std", "0.2,0.2,0.2")
    assert "avg 8, logits 3, std 8" in result.stdout
    assert "12 images of" in result.stderr
    assert "8 × 8" in result.stderr
    assert "mean (0.5, 0.5, 0.5)" in result.stderr


def test_extract_layers_head_limit_and_labels(run: Run, pictures: Path) -> None:
    options = ("--layers", "0", "--head", "4", "--limit", 5, "--no-labels")
    result = run(*EXTRACT, "--images", pictures, "--out", "f", *options, "--json")
    assert result["samples"] == 5
    assert not result["labels"]
    assert {"avg@0", "std@0"} <= set(result["columns"])


def test_extract_from_an_array_keeps_its_size(run: Run) -> None:
    np.savez("x.npz", images=np.zeros((4, 9, 9, 3), dtype=np.uint8), labels=np.arange(4))
    options = ("--model", "tiny_model_of_cli:small", "--images", "x.npz", "--out", "f", "--json")
    assert run("extract", *options)["preprocessing"]["size"] == [9, 9]


def test_extract_uses_the_preprocessing_of_a_timm_model(run: Run, pictures: Path) -> None:
    pytest.importorskip("timm")
    model = ("extract", "--model", "timm:resnet10t?num_classes=3", "--images", pictures, "--json")
    own = run(*model, "--out", "a")["preprocessing"]
    assert own["size"] == [176, 176]
    assert own["interpolation"] == "bicubic"
    small = run(*model, "--out", "b", "--size", 32)["preprocessing"]
    assert small["size"] == [32, 32]
    assert small["crop_pct"] == 1.0


def test_extract_twice_opens_what_is_there_and_refuses_other_images(run: Run, pictures: Path) -> None:
    command = (*EXTRACT, "--images", pictures, "--out", "f")
    run(*command)
    before = Path("f/avg.npy").stat().st_mtime_ns
    run(*command)
    assert Path("f/avg.npy").stat().st_mtime_ns == before
    assert "preprocessing differ" in run(*command, "--mean", "0,0,0", code=1).stderr
    (pictures / "ant" / "0.png").rename(pictures / "ant" / "9.png")
    assert "files differ" in run(*command, code=1).stderr
    run(*command, "--overwrite")
    assert "ant/9.png" in Path("f.json").read_text()


def test_extract_leaves_a_foreign_file_beside_the_store_alone(run: Run, pictures: Path) -> None:
    Path("f.json").write_text('{"mine": 1}')
    assert "is in the way" in run(*EXTRACT, "--images", pictures, "--out", "f", code=1).stderr
    assert Path("f.json").read_text() == '{"mine": 1}'


def test_extract_names_an_unreadable_image_or_skips_it(run: Run, pictures: Path) -> None:
    (pictures / "bee" / "1.png").write_bytes(b"nothing")
    command = (*EXTRACT, "--images", pictures, "--out", "f", "--json")
    assert "bee/1.png cannot be read" in run(*command, code=1).stderr
    assert run(*command, "--skip-unreadable", "--overwrite")["samples"] == 11
    assert run(*command, "--skip-unreadable")["samples"] == 11


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "absent_z:f"), "There is no module"),
        (("--model", "tiny_model_of_cli:small", "--head", "nine"), "no layer 'nine'"),
        (("--model", "tiny_model_of_cli:small", "--device", "quantum"), "device 'quantum'"),
        (("--model", "tiny_model_of_cli:small", "--weights", "w.pt"), "There is no file"),
        (("--model", "tiny_model_of_cli:small", "--crop-pct", "7"), "crop_pct"),
    ],
)
def test_extract_with_what_cannot_be_used(run: Run, pictures: Path, options: tuple[str, ...], message: str) -> None:
    result = run("extract", "--images", pictures, "--out", "f", *options, code=1)
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_extract_after_a_failure_at_the_first_batch_needs_no_overwriting(run: Run, pictures: Path) -> None:
    command = ("extract", "--model", "tiny_model_of_cli:Odd", "--images", pictures, "--size", 8, "--out", "f", "--json")
    assert "--head none" in run(*command, code=1).stderr
    assert run(*command, "--head", "none")["columns"] == {"avg": 3, "std": 8}


def test_numbers_that_are_none_exit_with_2(run: Run, pictures: Path) -> None:
    run(*EXTRACT, "--images", pictures, "--out", "f", "--mean", "red,green,blue", code=2)
