"""Every example runs offline and shows what it says: false alarms as asked for, unknowns found, loaded as saved."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from ipykernel.kernelspec import write_kernel_spec
from nbclient import NotebookClient
from PIL import Image
from safetensors.torch import save_file

from export_data import SMALL, guarded
from heat_ood import HEAT, Features
from heat_ood.errors import Notice
from heat_ood.export import export
from heat_ood.guarding import LiveJudge

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = ("own_model", "timm_model", "text_classifier", "arrays_alone", "own_method")
ALONE = "onnx_alone"
"""It uses what was exported, and imports nothing of ours."""
NOTEBOOK = FOLDER / "comparing_detectors.ipynb"
LINES = 85


def near(rate: float, calibration: int, test: int, asked: float = 0.05) -> bool:
    """Whether a measured rate is within three standard deviations, of both samples, of the one asked for."""
    return abs(rate - asked) < 3 * sqrt(asked * (1 - asked) * (1 / calibration + 1 / test))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports an example under its own name, without a network, and leaves the caller's random state alone."""

    def refuse(_: socket.socket, address: Any) -> None:
        raise OSError(f"an example wants to connect to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.syspath_prepend(FOLDER)
    with torch.random.fork_rng(devices=[]):
        yield importlib.import_module


# What each shows


def test_own_model(example: Callable[[str], Any]) -> None:
    found = example("own_model").main()
    assert found["accuracy"] > 0.95
    assert near(found["false_alarms"], 300, 364)
    assert found["caught"] > 0.8
    assert found["same"] is True


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
def test_timm_model(example: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    false_alarms, result = example("timm_model").main([])
    assert near(false_alarms, 250, 234)
    assert all(row.auroc > 0.75 for row in result)
    assert "test_resnet, random weights: Features(n=234, avg=96, std=96, avg@layer1=" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
def test_timm_model_with_the_weights_of_a_file(
    example: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = example("timm_model")
    torch.manual_seed(1)
    pretrained = module.timm.create_model("test_resnet")  # 1,000 classes, as timm's own weights have
    save_file(pretrained.state_dict(), tmp_path / "weights.safetensors")

    create, made = module.timm.create_model, []
    monkeypatch.setattr(module.timm, "create_model", lambda *a, **k: made.append(create(*a, **k)) or made[-1])
    false_alarms, _ = module.main(["--weights", str(tmp_path / "weights.safetensors"), "--size", "48"])
    (model,) = made
    assert near(false_alarms, 250, 234)
    assert torch.equal(model.layer4[0].conv1.weight, pretrained.layer4[0].conv1.weight)
    assert model.num_classes == 2


def test_text_classifier(example: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(Notice, match="without earlier layers"):
        false_alarms, result = example("text_classifier").main()
    assert near(false_alarms, 200, 172)
    assert result["out of scope"].auroc > 0.8
    answers = re.findall(r"intent (\d), p-value (\d\.\d+)", capsys.readouterr().out)
    assert answers[0][0] == "1"
    assert float(answers[0][1]) > 0.05
    assert float(answers[1][1]) <= 0.05, "the weather in Norway"


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
def test_text_classifier_from_a_folder(example: Callable[[str], Any], tmp_path: Path) -> None:
    module = example("text_classifier")
    tokenizer, model = module.load(None, ["block the gold card , please", "what does a new account cost"])
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    false_alarms, _ = module.main(str(tmp_path))
    assert near(false_alarms, 200, 172)


def test_arrays_alone(example: Callable[[str], Any]) -> None:
    with pytest.warns(Notice, match=r"without std .* without earlier layers"):
        false_alarms, results = example("arrays_alone").main()
    assert near(false_alarms, 300, 364)
    for method in ("HEAT", "knn"):
        assert results[method]["digits 7 to 9"].auroc > 0.9
        assert results[method]["noise"].auroc > 0.99


def test_own_method(example: Callable[[str], Any]) -> None:
    module = example("own_method")
    results, same = module.main()
    assert same is True
    assert all(result.average.auroc > 0.85 for result in results.values())


def test_own_method_is_what_its_formula_says(example: Callable[[str], Any]) -> None:
    train = Features(avg=torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 1.0]]), labels=[0, 0, 1])
    cosine = example("own_method").Cosine().fit(train)
    score = cosine.score(torch.tensor([[7.0, 0.0], [3.0, 3.0], [-1.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(score, torch.tensor([0.0, 1 - sqrt(0.5), 1.0, 1.0]))


def test_own_method_as_a_script(tmp_path: Path) -> None:
    """The class is then one of ``__main__``."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(FOLDER / "own_method.py")]
    out = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert "the same p-values" in out.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


# The notebook


def test_the_notebook_has_no_outputs() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code), "clear all outputs before saving it"


def test_comparing_detectors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run by this Python, whatever kernels the machine has, and without a trace in the home folder."""
    write_kernel_spec(str(tmp_path / "jupyter" / "kernels" / "python3"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)

    book = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(book, timeout=300, startup_timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()

    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    assert not any(output.get("name") == "stderr" for output in outputs)
    tables = [output.data["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {})]
    rows = dict(re.findall(r"^\| ([a-z-]+) \|.* / \**([\d.]+)\** \|$", tables[0], re.MULTILINE))
    assert set(rows) == {"msp", "energy", "knn", "vim", "mahalanobis", "relative-gmm", "heat"}
    assert all(float(auroc) > 90 for auroc in rows.values())
    assert float(rows["heat"]) > 98
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    alarms = {name: float(rate) / 100 for name, rate in re.findall(r"^(\S+): ([\d.]+)% false", printed, re.MULTILINE)}
    assert set(alarms) == set(rows)
    assert all(near(rate, 360, 359) for rate in alarms.values())


@pytest.mark.filterwarnings("ignore")
def test_onnx_alone(tmp_path: Path) -> None:
    """In a process of its own, which has neither torch nor heat-ood; it says what the guard says."""
    guard = guarded(HEAT(residual=SMALL), contrast=False)
    export(guard, tmp_path / "guard.onnx")
    sizes = {"wide.png": (31, 20), "tall.png": (9, 40), "exact.png": (10, 12)}
    for seed, (name, size) in enumerate(sizes.items()):
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    run = (
        "import json, sys; import onnx_alone; rows = onnx_alone.main(sys.argv[1:]); print(json.dumps(rows)); "
        "assert not {'torch', 'heat_ood'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", run, "guard.onnx", *sizes],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, rows = done.stdout.splitlines()
    assert len(said) == 3
    judge = LiveJudge(guard)
    assert judge.preprocessing is not None
    live = judge.judge(np.stack([judge.preprocessing.pixels(Image.open(tmp_path / name)) for name in sizes]))
    for i, row in enumerate(json.loads(rows)):
        assert row["score"] == pytest.approx(live.score[i], abs=1e-3)
        assert row["class"] == ("ant", "bee", "cat")[int(live.logits[i].argmax())]
        assert row["energies"].keys() == live.energies.keys()
    assert len((FOLDER / f"{ALONE}.py").read_text(encoding="utf-8").splitlines()) <= LINES


# What all have in common


def sources() -> dict[str, str]:
    """The code of each example by its name."""
    found = {name: (FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in SCRIPTS}
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    return found | {NOTEBOOK.stem: "\n".join(cell.source for cell in cells if cell.cell_type == "code")}


def test_none_is_forgotten() -> None:
    files = {file.name for file in FOLDER.iterdir() if file.is_file()} - {"README.md"}
    assert files == {f"{name}.py" for name in (*SCRIPTS, ALONE)} | {NOTEBOOK.name}
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"({file})" in readme for file in files)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_says_how_to_run_it(name: str) -> None:
    text = sources()[name]
    assert len(text.splitlines()) <= LINES
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert f"python examples/{name}.py" in docstring
    assert "toy" in docstring
    assert text.endswith('if __name__ == "__main__":\n    main()\n') or "main(*sys.argv[1:2])" in text


@pytest.mark.parametrize("name", [*SCRIPTS, NOTEBOOK.stem])
def test_only_public_names_are_used(name: str) -> None:
    tree = ast.parse(sources()[name])
    used = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "heat_ood" in (node.module or "")]
    assert used
    for node in used:
        public = importlib.import_module(node.module or "").__all__
        assert {alias.name for alias in node.names} <= set(public), node.module
    hidden = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    assert set(hidden) <= {"__init__"}
