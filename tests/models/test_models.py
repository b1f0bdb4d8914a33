"""Models by name: timm's, a function's, with weights that cannot run code."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from heat_ood.errors import InputError
from heat_ood.models import load_model

MODULE = """
import functools
import torch
from torch import nn

def small(): return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
def sized(width, depth=2): return nn.Linear(width, depth)
def nothing(): return None
def broken(): raise OSError("no such disk\\nsecond line")
class Net(nn.Linear):
    def __init__(self): super().__init__(4, 2)
def resnet18(): return small()
def trained():
    net = small()
    net.load_state_dict({"1.weight": torch.ones(3, 12), "1.bias": torch.ones(3)})
    return net
def half(): return nn.Sequential(trained(), nn.Linear(3, 5))
same = functools.cache(small)
number = 3
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name of its own: imports are remembered."""
    module = f"models_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return module


def test_a_function_of_the_current_folder(name: str) -> None:
    model = load_model(f"{name}:small")
    assert not model.training
    assert isinstance(load_model(f"{name}:Net"), nn.Linear)


def test_random_weights_are_the_same_in_every_run_and_the_callers_generator_is_left_alone(name: str) -> None:
    before = torch.random.get_rng_state()
    one, other = load_model(f"{name}:small"), load_model(f"{name}:small")
    assert torch.equal(one[1].weight, other[1].weight)  # type: ignore[index]
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "has no function 'absent'. It has small, sized, nothing, broken"),
        ("number", "has no function 'number'"),
        ("resnet180", "has no function 'resnet180'. Did you mean resnet18?"),
        ("Nett", "has no function 'Nett'. Did you mean Net?"),
        ("sized", "needs the arguments width"),
        ("nothing", "returned NoneType, not an nn.Module"),
        ("broken", "raised OSError: no such disk. Try"),
    ],
)
def test_a_function_that_gives_no_model(name: str, function: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_model(f"{name}:{function}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("resnet34", "is not a model"), ("no_such_module_x:f", "There is no module 'no_such_module_x'")],
)
def test_a_name_that_is_no_model(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(text)


@pytest.mark.parametrize(
    ("source", "message"), [("import absent_y", "needs the module 'absent_y'"), ("1 / 0", "ZeroDivisionError")]
)
def test_a_module_that_cannot_be_imported(name: str, source: str, message: str) -> None:
    Path(f"{name}_bad.py").write_text(source)
    with pytest.raises(InputError, match=message):
        load_model(f"{name}_bad:f")


def test_weights_of_a_file(name: str, tmp_path: Path) -> None:
    state = {"1.weight": torch.randn(3, 12), "1.bias": torch.randn(3)}
    save_file(state, tmp_path / "w.safetensors")
    model = load_model(f"{name}:small", tmp_path / "w.safetensors")
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[key])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"1.weight": torch.zeros(3, 12)}, "missing: 1.bias"),
        ({"1.weight": torch.zeros(3, 12), "1.bias": torch.zeros(3), "x": torch.zeros(1)}, "unknown: x"),
        ({"1.weight": torch.zeros(5, 12), "1.bias": torch.zeros(3)}, r"1.weight \(5, 12\) for \(3, 12\)"),
    ],
)
def test_weights_of_another_model(name: str, tmp_path: Path, state: dict[str, torch.Tensor], message: str) -> None:
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=message):
        load_model(f"{name}:small", tmp_path / "w.safetensors")


def test_damaged_or_absent_weights(name: str, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="damaged"):
        load_model(f"{name}:small", tmp_path / "w.safetensors")
    with pytest.raises(InputError, match="There is no file"):
        load_model(f"{name}:small", tmp_path / "absent.safetensors")


STATE = {"1.weight": torch.arange(36.0).view(3, 12), "1.bias": torch.arange(3.0)}


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "model."])
@pytest.mark.parametrize("wrapper", ["", "state_dict", "model", "model_state_dict", "net", "ema"])
@pytest.mark.parametrize("suffix", ["pt", "pth", "bin"])
def test_weights_that_torch_saved(name: str, tmp_path: Path, suffix: str, wrapper: str, prefix: str) -> None:
    state = {prefix + key: value for key, value in STATE.items()}
    torch.save({wrapper: state, "epoch": 3, "optimizer": {"lr": 0.1}} if wrapper else state, tmp_path / f"w.{suffix}")
    model = load_model(f"{name}:small", tmp_path / f"w.{suffix}")
    assert all(torch.equal(value, STATE[key]) for key, value in model.state_dict().items())


def test_prefixes_in_safetensors_and_averaged_models(name: str, tmp_path: Path) -> None:
    save_file({f"module.{key}": value for key, value in STATE.items()}, tmp_path / "w.safetensors")
    average = torch.optim.swa_utils.AveragedModel(load_model(f"{name}:trained"))
    torch.save(average.state_dict(), tmp_path / "average.pt")
    assert torch.equal(load_model(f"{name}:small", tmp_path / "w.safetensors").state_dict()["1.bias"], STATE["1.bias"])
    assert load_model(f"{name}:small", tmp_path / "average.pt").state_dict()["1.bias"].tolist() == [1, 1, 1]


class Opener:
    """Opened as a pickle, it makes a file."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("opened"),)


@pytest.mark.parametrize("what", ["code", "code beside weights", "model"])
def test_a_pickle_of_more_than_weights_is_refused_and_not_run(name: str, tmp_path: Path, what: str) -> None:
    whole = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    held: Any = {"code": Opener(), "code beside weights": {"state_dict": STATE, "args": Opener()}, "model": whole}[what]
    torch.save(held, tmp_path / "w.pth")
    with pytest.raises(InputError, match=r"holds more than weights \(a pickled [\w.]+\), which can run code") as caught:
        load_model(f"{name}:small", tmp_path / "w.pth")
    assert "\n" not in str(caught.value)
    assert not Path("opened").exists()
    if what == "model":
        command = str(caught.value).split("convert it once: python -c ")[1].strip('"')
        subprocess.run([sys.executable, "-c", command], check=True)
        found = load_model(f"{name}:small", tmp_path / "w.safetensors").state_dict()
        assert torch.equal(found["1.weight"], whole.state_dict()["1.weight"])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (torch.zeros(3), r"holds no weights by name \(Tensor\)"),
        ({"epoch": 3, "lr": 0.1}, r"holds no weights by name \(epoch, lr\)"),
        (None, "is damaged or holds no weights"),
    ],
)
def test_a_file_of_torch_without_weights(name: str, tmp_path: Path, held: Any, message: str) -> None:
    if held is None:
        (tmp_path / "w.pt").write_bytes(b"nothing of the kind")
    else:
        torch.save(held, tmp_path / "w.pt")
    with pytest.raises(InputError, match=message):
        load_model(f"{name}:small", tmp_path / "w.pt")


def test_a_torchscript_program_is_refused(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(nn.Linear(12, 3), torch.zeros(1, 12)), tmp_path / "w.pt")
    with pytest.raises(InputError, match="a TorchScript program"):
        load_model(f"{name}:small", tmp_path / "w.pt")


def test_a_torch_that_does_not_open_pickles_safely(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(STATE, tmp_path / "w.pt")
    monkeypatch.setattr("torch.__version__", "2.5.1+cpu")
    with pytest.raises(InputError, match=r"Install torch 2\.6 or later"):
        load_model(f"{name}:small", tmp_path / "w.pt")


def test_a_file_of_another_kind(name: str, tmp_path: Path) -> None:
    (tmp_path / "w.h5").write_bytes(b"")
    with pytest.raises(InputError, match="no file of weights by its name"):
        load_model(f"{name}:small", tmp_path / "w.h5")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("small", "small has random weights, so its features mean little. Pass weights=…, or load"),
        ("half", r"Some weights of .*:half are random \(1\.weight\)"),
        ("same", "cannot be told whether its weights are random"),
    ],
)
def test_random_weights_of_a_function_are_said(name: str, function: str, message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        load_model(f"{name}:{function}")


def test_weights_that_a_function_loads_are_not_called_random(name: str, tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "w.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(f"{name}:trained")
        load_model(f"{name}:small", tmp_path / "w.pt")


def test_tied_weights_may_stand_once_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    monkeypatch.setattr("heat_ood.models._loading.from_function", lambda *_: Tied())
    save_file({"a.weight": torch.eye(3)}, tmp_path / "w.safetensors")
    model = load_model("some:where", tmp_path / "w.safetensors")
    assert torch.equal(model.state_dict()["b.weight"], torch.eye(3))


class TestTimm:
    def test_settings_follow_the_name(self) -> None:
        with pytest.warns(UserWarning, match="random weights"):
            model = load_model("timm:resnet18?num_classes=7&in_chans=1")
        assert model(torch.zeros(1, 1, 32, 32)).shape == (1, 7)

    def test_own_weights(self, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match="random weights"):
            first = load_model("timm:resnet18?num_classes=7")
        state = {k: v + 1 for k, v in first.state_dict().items()}
        save_file(state, tmp_path / "w.safetensors")
        model = load_model("timm:resnet18?num_classes=7", tmp_path / "w.safetensors")
        assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
        with pytest.raises(InputError, match="num_classes follows the name"):
            load_model("timm:resnet18", tmp_path / "w.safetensors")

    def test_an_unknown_name_suggests_others(self) -> None:
        with pytest.raises(InputError, match=r"Did you mean .*resnet34"):
            load_model("timm:resnett34")

    def test_a_wrong_setting(self) -> None:
        with pytest.raises(InputError, match="Check the settings"):
            load_model("timm:resnet18?window_size=7")

    @pytest.mark.parametrize("spelling", ["timm:resnet18?pretrained", "timm:resnet18"])
    def test_weights_that_cannot_be_fetched(self, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def offline(*_: object, pretrained: bool, **__: object) -> None:
            assert pretrained
            raise OSError("We couldn't connect\nto the hub")

        monkeypatch.setattr("timm.create_model", offline)
        with pytest.raises(InputError, match=r"could not be fetched \(We couldn't connect\)"):
            load_model(spelling, pretrained="?" not in spelling)

    def test_two_sources_of_weights(self, tmp_path: Path) -> None:
        save_file({"x": torch.zeros(1)}, tmp_path / "w.safetensors")
        with pytest.raises(InputError, match="either"):
            load_model("timm:resnet18", tmp_path / "w.safetensors", pretrained=True)


def test_pretrained_is_for_timm(name: str) -> None:
    with pytest.raises(InputError, match="pretrained is for timm"):
        load_model(f"{name}:small", pretrained=True)


def test_timm_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"pip install 'heat-ood\[timm\]'"):
        load_model("timm:resnet18")


class BrokenImport(MetaPathFinder):
    def __init__(self, package: str, error: Exception) -> None:
        self.package, self.error = package, error

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == self.package:
            raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("operator torchvision::nms does not exist"),
            "(RuntimeError: operator torchvision::nms does not exist). torchvision does not fit this torch",
        ),
        (ModuleNotFoundError("No module named 'huggingface_hub'", name="huggingface_hub"), "'huggingface_hub', which"),
    ],
)
@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_package_that_is_there_but_broken(
    package: str, error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setattr(sys, "meta_path", [BrokenImport(package, error), *sys.meta_path])
    with pytest.raises(InputError) as caught:
        load_model({"timm": "timm:resnet18", "torchvision": "torchvision.models:resnet18"}[package])
    assert message in str(caught.value)
    assert "heat-ood[timm]" not in str(caught.value)


def test_a_misspelt_model_of_torchvision_suggests_others() -> None:
    with pytest.raises(InputError, match=r"torchvision\.models has no function 'resnet180'\. Did you mean resnet18,"):
        load_model("torchvision.models:resnet180")
