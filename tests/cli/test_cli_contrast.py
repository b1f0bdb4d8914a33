"""``heat-ood contrast``: distorted images to stored features, and these into a detector."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from heat_ood import HEAT, Extractor, Features
from heat_ood.features import KINDS, read_manifest
from heat_ood.features._distortions import CONTRAST
from heat_ood.images import Preprocessing, open_images

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")
MODULE = "tiny_model_of_cli_contrast"
SOURCE = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
"""
MODEL = ("--model", f"{MODULE}:small", "--size", 8, "--batch-size", 5)
CONTRAST_OF = ("contrast", *MODEL, "--images", "pictures", "--out", "c")
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a model and pictures, which is the current one."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop(MODULE, None)
    rng = np.random.default_rng(0)
    for label in ("ant", "bee", "cat"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 256, (12, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / label / f"{i}.png")
    return tmp_path


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def loader() -> Any:
    images = open_images("pictures", labels=False)
    images.preprocessing = Preprocessing(size=(8, 8))
    return torch.utils.data.DataLoader(images, batch_size=5)


def contents(folder: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def test_the_help_names_all_kinds_and_the_defaults(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    text = run("contrast", "--help").stdout
    assert f"several: {', '.join(KINDS)}." in " ".join(text.replace("│", " ").split())
    assert f"({', '.join(CONTRAST)})" in text
    assert "heat-ood contrast --model" in text
    assert "fit --contrast" in text
    assert "contrast" in run("--help").stdout


def test_the_stored_features_are_those_of_the_library(run: Run) -> None:
    result = run(*CONTRAST_OF, "--json")
    Extractor(network(), name=f"{MODULE}:small").contrast(loader(), "by_hand")
    assert contents("c") == contents("by_hand")
    assert result["samples"] == 12
    assert result["columns"] == {"avg": 8, "std": 8, "logits": 3}
    assert list(result["kinds"]) == list(CONTRAST)
    assert sum(result["kinds"].values()) == 12
    assert result["preprocessing"]["size"] == [8, 8]
    assert "classes" not in result


def test_kinds_samples_and_seed(run: Run) -> None:
    options = ("--kind", "noise", "--kind", "blur", "--samples", 7, "--seed", 3)
    result = run(*CONTRAST_OF, *options, "--json")
    Extractor(network(), name=f"{MODULE}:small").contrast(loader(), "by_hand", ("noise", "blur"), samples=7, seed=3)
    assert contents("c") == contents("by_hand")
    labels = Features.open("c").labels
    assert labels is not None
    assert result["kinds"] == {"noise": int((labels == 0).sum()), "blur": int((labels == 1).sum())}
    assert result["samples"] == 7


def test_a_table_says_what_there_is(run: Run) -> None:
    result = run(*CONTRAST_OF, "--kind", "zoom")
    assert "zoom 12" in result.stdout
    assert "avg 8, logits 3, std 8" in result.stdout
    assert "12 images of pictures: 8 × 8" in result.stderr


def test_the_options_of_the_model(run: Run) -> None:
    result = run(*CONTRAST_OF, "--layers", "0", "--mean", "0.5,0.5,0.5", "--std", "0.2,0.2,0.2", "--json")
    assert {"avg@0", "std@0"} <= set(result["columns"])
    assert result["preprocessing"]["mean"] == [0.5] * 3


def test_the_record_gives_no_names_to_distorted_images(run: Run) -> None:
    """They stand in another order than their files, so a score must not carry a file's name."""
    run(*CONTRAST_OF)
    record = json.loads(Path("c.json").read_text())
    assert record["files"] is None
    assert record["sources"][4] == "bee/0.png"
    assert record["kinds"] == list(CONTRAST)
    run("extract", *MODEL, "--images", "pictures", "--out", "train")
    run("fit", "train", "--out", "d", "--prior", "gmm", "--no-residual")
    assert "png" not in run("score", "d", "c").stdout
    assert "bee/0.png" in run("score", "d", "train").stdout


def test_interrupted_and_run_again_gives_the_same_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from heat_ood.images import ImageSet

    run(*CONTRAST_OF)
    before, original, left = contents("c"), ImageSet.__getitem__, [7]

    def interrupted(self: ImageSet, index: int) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return original(self, index)

    command = (*CONTRAST_OF[:-1], "again")
    monkeypatch.setattr(ImageSet, "__getitem__", interrupted)
    assert "run the same command again to go on" in run(*command, code=130).stderr
    assert read_manifest(Path("again")).count == 5
    monkeypatch.setattr(ImageSet, "__getitem__", original)
    run(*command)
    assert contents("again") == before


def test_twice_opens_what_is_there_and_refuses_what_is_other(run: Run) -> None:
    run(*CONTRAST_OF)
    before = contents("c")
    run(*CONTRAST_OF)
    for other, told in {
        ("--seed", 1): f"{CONTRAST[-1]}; seed 0; now distorted: {CONTRAST[0]}, ",
        ("--kind", "noise"): "now distorted: noise; seed 0",
        ("--samples", 5): "5 samples",
        ("--mean", "0,0,0"): "preprocessing differ",
    }.items():
        stderr = run(*CONTRAST_OF, *other, code=1).stderr
        assert told in stderr
        assert "--overwrite" in stderr
    Path("pictures/ant/0.png").rename("pictures/ant/9.png")
    assert "sources differ" in run(*CONTRAST_OF, code=1).stderr
    assert contents("c") == before
    run(*CONTRAST_OF, "--kind", "noise", "--overwrite")
    assert set(Features.open("c").labels.tolist()) == {0}
    assert "ant/9.png" in Path("c.json").read_text()


def test_extract_and_contrast_do_not_share_a_folder(run: Run) -> None:
    run(*CONTRAST_OF)
    run("extract", *MODEL, "--images", "pictures", "--out", "train")
    assert "--overwrite" in run("extract", *CONTRAST_OF[1:], code=1).stderr
    assert "--overwrite" in run(*CONTRAST_OF[:-1], "train", code=1).stderr
    Path("c.json").unlink()
    Path("train.json").unlink()
    assert "of other samples" in run("extract", *CONTRAST_OF[1:], code=1).stderr
    assert "of other samples" in run(*CONTRAST_OF[:-1], "train", code=1).stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kind", "fog"), "kinds cannot be ['fog']. Pass a tuple of jigsaw-2, "),
        (("--kind", "noise", "--kind", "noise"), "each once"),
        (("--images", "nowhere"), "There is no nowhere"),
        (("--head", "nine"), "no layer 'nine'"),
    ],
)
def test_what_cannot_be_used(run: Run, options: tuple[str, ...], message: str) -> None:
    result = run(*CONTRAST_OF, *options, code=1)
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert not Path("c").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--images", "pictures", "--out", "c"),
        ("--model", f"{MODULE}:small", "--out", "c"),
        (*CONTRAST_OF[1:], "--samples", 0),
        (*CONTRAST_OF[1:], "--seed", -1),
    ],
    ids=["no model", "no images", "no samples", "negative seed"],
)
def test_a_wrong_command_line_exits_with_2(run: Run, arguments: tuple[Any, ...]) -> None:
    run("contrast", *arguments, code=2)


def test_contrast_from_an_array_enters_a_fit(run: Run) -> None:
    rng = np.random.default_rng(0)
    np.savez("x.npz", images=rng.integers(0, 256, (90, 9, 9, 3), dtype=np.uint8), labels=np.arange(90) % 3)
    model = ("--model", f"{MODULE}:small", "--images", "x.npz")
    run("extract", *model, "--out", "train")
    assert run("contrast", *model, "--out", "c", "--json")["samples"] == 90
    fit = ("fit", "train", "--prior", "gmm", "--epochs", 2, "--json")
    without, taught = run(*fit, "--out", "without")["log"], run(*fit, "--out", "with", "--contrast", "c")["log"]
    settings = HEAT.load("with").residual
    by_hand = HEAT(("gmm",), residual=settings).fit(Features.open("train"), Features.open("c"), progress=False)
    assert taught == by_hand.log
    assert (list(taught), list(without)) == (["joint"], ["gmm"])


def test_info_says_how_the_images_were_distorted(run: Run) -> None:
    run(*CONTRAST_OF, "--kind", "noise", "--kind", "blur", "--samples", 20, "--seed", 3)
    assert run("info", "c", "--json")["origin"] == "distorted: noise, blur; seed 3; 20 samples"
    assert "distorted: noise, blur" in run("info", "c").stdout
    run("extract", *MODEL, "--images", "pictures", "--out", "plain")
    assert run("info", "plain", "--json")["origin"] is None
    assert "origin" not in run("info", "plain").stdout
