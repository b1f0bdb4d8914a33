"""Models by name: timm's, a function's, with weights that cannot run code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from heat_ood.errors import InputError
from heat_ood.models import load_model

MODULE = """
import torch
from torch import nn

def small(): return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
def sized(width, depth=2): return nn.Linear(width, depth)
def nothing(): return None
def broken(): raise OSError("no such disk\\nsecond line")
class Net(nn.Linear):
    def __init__(self): super().__init__(4, 2)
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


def test_a_pickle_is_refused_and_the_command_in_the_error_converts_it(name: str, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).state_dict(), tmp_path / "w.pth")
    with pytest.raises(InputError, match="pickled weights") as caught:
        load_model(f"{name}:small", tmp_path / "w.pth")
    command = str(caught.value).split("Convert them once: python -c ")[1].strip('"')
    subprocess.run([sys.executable, "-c", command], check=True)
    load_model(f"{name}:small", tmp_path / "w.safetensors")


def test_tied_weights_may_stand_once_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    monkeypatch.setattr("heat_ood.models._from_function", lambda *_: Tied())
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
            load_model("timm:resnet18?colour=blue")

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
