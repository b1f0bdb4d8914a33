"""Names of models and files of weights that ask for more than a network: refused before timm or torch is asked."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from heat_ood.errors import InputError
from heat_ood.models import load_model

MODULE = "from torch import nn\ndef small(): return nn.Linear(2, 2)\n"


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    module = f"hostile_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"{module}:small"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What timm was asked for."""
    calls: list[Any] = []
    monkeypatch.setattr("timm.create_model", lambda *a, **k: calls.append((a, k)))
    return calls


@pytest.mark.parametrize(
    "setting",
    [
        "checkpoint_path=w.pth",
        "Checkpoint_Path=w.pth",
        "%63heckpoint_path=w.pth",
        "checkpoint%5Fpath=w.pth",
        "num_classes=3&checkpoint_path=w.pth",
        "pretrained_cfg_overlay={'file':'w.pth'}",
        "pretrained_cfg={'file':'w.pth'}",
        "pretrained_cfg=hf-hub:evil/model",
        "cache_dir=here",
        "pretrained_filter_fn=x",
        "pretrained_strict=0",
        "features_only=1",
        "feature_cls=fx",
        "file=w.pth",
        "url=http://evil",
        "kwargs={}",
        "pruned=1",
    ],
)
def test_a_setting_that_does_not_build_the_network_never_reaches_timm(setting: str, asked: list[Any]) -> None:
    with pytest.raises(InputError, match=r"is not given the setting .* weights=…; for all else write a function"):
        load_model(f"timm:resnet18?{setting}")
    assert asked == []


@pytest.mark.parametrize(
    "model",
    [
        *("hf-hub:evil/model", "hf_hub:evil/model", "local-dir:.", "resnet18.hf-hub:evil/model", "./resnet18"),
        *(
            "resnet18.a/../../x",
            "http://evil/resnet18",
            "resnet18#x",
            "resnet18@x",
            "resnet18.a1_in1k/x",
            "timm:resnet18",
        ),
    ],
)
def test_a_name_that_is_an_address_never_reaches_timm(model: str, asked: list[Any]) -> None:
    with pytest.raises(InputError, match="timm has no model"):
        load_model(f"timm:{model}", pretrained=True)
    assert asked == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("num_classes=3&num_classes=4", "the setting 'num_classes' twice"),
        ("num_classes=100000000000", "neither a word nor a number up to 100,000"),
        ("depths=(1,1000000000)", "neither a word nor a number"),
        ("num_classes=" + "9" * 5000, "neither a word nor a number"),
        ("global_pool=../w.pth", "neither a word nor a number"),
        ("global_pool={'a':1}", "neither a word nor a number"),
        ("num_classes=" + "(" * 100_000, "neither a word nor a number"),
        ("&".join(f"a{i}=1" for i in range(2000)), "more settings than there are"),
    ],
)
def test_settings_out_of_proportion(query: str, message: str, asked: list[Any]) -> None:
    with pytest.raises(InputError, match=message):
        load_model(f"timm:resnet18?{query}")
    assert asked == []


def test_an_evil_checkpoint_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an old timm does: it opens whatever ``checkpoint_path`` names, by the plain unpickler."""

    class Opener:
        def __reduce__(self) -> Any:
            return Path.touch, (Path("opened"),)

    monkeypatch.chdir(tmp_path)
    torch.save(Opener(), "evil.pth")

    def old(*_: object, checkpoint_path: str | None = None, **__: object) -> Any:
        return torch.nn.Linear(2, 2) if checkpoint_path is None else torch.load(checkpoint_path, weights_only=False)

    monkeypatch.setattr("timm.create_model", old)
    with pytest.raises(InputError):
        load_model("timm:resnet18?checkpoint_path=evil.pth")
    assert not Path("opened").exists()


def test_an_old_timm_fetches_nothing(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "__version__", "1.0.25")
    with pytest.raises(InputError, match=r"timm 1\.0\.25 may run code .* pip install 'timm>=1\.0\.26'"):
        load_model("timm:resnet18", pretrained=True)
    with pytest.raises(InputError, match="may run code"):
        load_model("timm:resnet18?%70retrained=1")
    assert asked == []


def test_the_floor_is_the_one_that_is_installed_with_us() -> None:
    from heat_ood.models._timm import SAFE

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"timm>={".".join(map(str, SAFE))}"' in text


# Files of weights


def test_a_dictionary_that_holds_itself(name: str) -> None:
    held: dict[str, Any] = {}
    held["model"] = held
    torch.save(held, "w.pt")
    with pytest.raises(InputError, match="holds no weights by name"):
        load_model(name, "w.pt")


def test_a_compressed_archive_is_not_unpacked(name: str) -> None:
    torch.save({"weight": torch.zeros(2, 2), "bias": torch.zeros(1 << 20)[:2]}, "w.pt")
    with zipfile.ZipFile("w.pt") as plain, zipfile.ZipFile("bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry))
    load_model(name, "w.pt")
    with pytest.raises(InputError, match="unpacks to much more"):
        load_model(name, "bomb.pt")


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_sparse_file_is_not_read(name: str, suffix: str) -> None:
    with open(f"w.{suffix}", "wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InputError, match="is damaged"):
        load_model(name, f"w.{suffix}")


def test_a_pipe_is_not_waited_for(name: str) -> None:
    os.mkfifo("w.safetensors")
    with pytest.raises(InputError, match="is no file"):
        load_model(name, "w.safetensors")


def test_the_command_that_converts_holds_no_foreign_code(name: str) -> None:
    torch.save(torch.nn.Linear(2, 2), "$(touch x)').pt")
    with pytest.raises(InputError, match="convert it once") as caught:
        load_model(name, "$(touch x)').pt")
    assert "touch" not in str(caught.value).partition("convert it once")[2]
