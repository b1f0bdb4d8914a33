"""An exported file may come from anybody: what is not as it should be is refused before it is run."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import heat_ood
from heat_ood import FormatError, HeatError, InputError
from heat_ood.export import Exported, facts_in
from heat_ood.features import Guard

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def model(small: tuple[Guard, Exported]) -> Any:
    return onnx.load(small[1].path)


def described(model: Any) -> dict[str, Any]:
    (said,) = (json.loads(entry.value) for entry in model.metadata_props if entry.key == "heat-ood")
    return dict(said)


def redescribe(model: Any, said: Any) -> None:
    (entry,) = (entry for entry in model.metadata_props if entry.key == "heat-ood")
    entry.value = said if isinstance(said, str) else json.dumps(said)


def test_tensors_in_other_files_are_refused(model: Any, file: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(4096))
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    file.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="asks for other files to be read"):
        heat_ood.load(file)


def test_tensors_in_other_files_are_refused_within_nodes(model: Any, file: Path) -> None:
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["out"])],
        "inner",
        [],
        [onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [1])],
        [onnx.numpy_helper.from_array(np.zeros(1, np.float32), "w")],
    )
    inner.initializer[0].external_data.add(key="location", value="/etc/passwd")
    inner.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    model.graph.node.append(onnx.helper.make_node("If", ["fpr"], ["x"], then_branch=inner, else_branch=inner))
    file.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="asks for other files to be read"):
        heat_ood.load(file)


def test_operators_of_anybody_are_refused(model: Any, file: Path) -> None:
    model.graph.node.append(onnx.helper.make_node("Run", ["fpr"], ["y"], domain="evil"))
    model.opset_import.add(domain="evil", version=1)
    file.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="asks for operators of 'evil'"):
        heat_ood.load(file)


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another format": lambda said: {**said, "format": "something"},
    "a later version": lambda said: {**said, "version": 2},
    "no version": lambda said: {**said, "version": None},
    "an unknown key": lambda said: {**said, "run": "rm"},
    "a missing key": lambda said: {k: v for k, v in said.items() if k != "calibration"},
    "no JSON": lambda said: "{",
    "a key twice": lambda said: '{"format": "heat-ood export", "format": "heat-ood export", "version": 1}',
    "takes nothing": lambda said: {**said, "takes": "sound"},
    "columns of pixels": lambda said: {**said, "columns": ["avg"], "widths": [3]},
    "no size": lambda said: {**said, "preprocessing": {**said["preprocessing"], "size": None}},
    "a size of another kind": lambda said: {**said, "preprocessing": {**said["preprocessing"], "size": [12, "10"]}},
    "a huge size": lambda said: {**said, "preprocessing": {**said["preprocessing"], "size": [10**9, 10**9]}},
    "scores that are none": lambda said: {**said, "calibration": {**said["calibration"], "scores": "!"}},
    "scores out of order": lambda said: {
        **said,
        "calibration": {**said["calibration"], "scores": said["calibration"]["limits"][::-1]},
    },
    "too few scores": lambda said: {
        **said,
        "calibration": {**said["calibration"], "scores": said["calibration"]["scores"][:16]},
    },
    "a kind of scores": lambda said: {**said, "calibration": {**said["calibration"], "kind": "object"}},
    "other outputs": lambda said: {**said, "outputs": ["logits", "score", "p_value", "ood"]},
    "outputs in another order": lambda said: {**said, "outputs": said["outputs"][::-1]},
    "no probe": lambda said: {**said, "probe": {**said["probe"], "scores": [], "p_values": []}},
    "a probe that forgives all": lambda said: {**said, "probe": {**said["probe"], "tolerance": "inf"}},
    "an fpr": lambda said: {**said, "fpr": 2},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_description_that_does_not_fit_is_refused(name: str, model: Any, file: Path) -> None:
    redescribe(model, CHANGES[name](described(model)))
    file.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match=r"\.onnx"):
        heat_ood.load(file)


def test_a_file_that_judges_otherwise_is_found(model: Any, file: Path) -> None:
    said = described(model)
    said["probe"]["scores"][2] += 0.5
    redescribe(model, said)
    file.write_bytes(model.SerializeToString())
    opened = heat_ood.load(file)
    with pytest.raises(FormatError, match=r"judges otherwise here .* score .* instead of"):
        opened.verify()


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04", b"{}"])
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_files_that_are_something_else(content: bytes, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"guard{suffix}"
    file.write_bytes(content)
    with pytest.raises(FormatError):
        heat_ood.load(file, trust=True)
    with pytest.raises(FormatError):
        facts_in(file)


def test_cut_and_changed_bytes_never_crash(small: tuple[Guard, Exported], file: Path) -> None:
    content, random = small[1].path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(content[: random.integers(1, len(content))] if random.random() < 0.5 else content)
        for at in random.integers(0, len(broken), 8):
            broken[at] = random.integers(0, 256)
        file.write_bytes(bytes(broken))
        try:
            opened = Exported(file)
            opened.verify()
        except (HeatError, OSError):
            pass
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}")


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


def test_no_pickle_is_loaded_unless_the_caller_says_so(small: tuple[Guard, Exported], tmp_path: Path) -> None:
    """An archive whose parts are pickles that would be seen: it is described and refused, and none is opened."""
    buffer = io.BytesIO()
    torch.save(Bomb(), buffer)
    file = tmp_path / "guard.pt2"
    said = {e.key: e.value for e in onnx.load(small[1].path).metadata_props}["heat-ood"]
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("weights/model.pt", "sample_inputs/model.pt", "constants/model.pt"):
            archive.writestr(f"guard/data/{name}", buffer.getvalue())
        archive.writestr("guard/extra/heat-ood.json", said)
    assert facts_in(file).takes == "pixels"
    with pytest.raises(InputError, match="may run code"):
        heat_ood.load(file)
