"""A guard as one file says what the guard says, whatever opens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import heat_ood
from export_data import HALF, guarded, noise, small_network
from heat_ood import HEAT, Extractor, Features, InputError, create
from heat_ood.export import Exported, export
from heat_ood.features import Guard
from heat_ood.guarding import LiveJudge
from heat_ood.images import Preprocessing
from method_data import samples

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("count", [1, 2, 33])
def test_a_file_says_what_its_guard_says(small: tuple[Guard, Exported], alike: Any, count: int) -> None:
    guard, exported = small
    judge, pixels = LiveJudge(guard), np.concatenate([noise(count, 7), noise(count, 8, level=90)])[:count]
    alike(exported.judge(pixels), judge.judge(pixels), judge)


def test_it_is_opened_by_the_front_door_and_verified(small: tuple[Guard, Exported]) -> None:
    opened = heat_ood.load(small[1].path)
    assert isinstance(opened, Exported)
    opened.verify()
    assert opened.classes == ("ant", "bee", "cat")
    assert opened.preprocessing == HALF
    assert opened.columns == ()
    assert opened.about["method"] == "heat"
    assert opened.about["fingerprint"] == small[0].detector.fingerprint
    assert torch.equal(opened.calibration.scores, small[0].detector.calibration.scores)
    assert torch.equal(opened.calibration.limits, small[0].detector.calibration.limits)
    with pytest.raises(InputError, match="has its model in it"):
        heat_ood.load(small[1].path, model=small_network())


def test_the_graph_decides_at_the_rate_that_it_is_given(small: tuple[Guard, Exported]) -> None:
    session = onnxruntime.InferenceSession(small[1].path)
    pixels = np.concatenate([noise(40, 3), noise(4, 4, level=120)])
    p_value, by_default = session.run(["p_value", "ood"], {"pixels": pixels})
    np.testing.assert_array_equal(by_default, p_value <= 0.05)
    for rate in (0.3, 0.9):
        (ood,) = session.run(["ood"], {"pixels": pixels, "fpr": np.array(rate)})
        np.testing.assert_array_equal(ood, p_value <= rate)
    assert p_value.dtype == np.float64
    assert ood.dtype == np.bool_


def test_a_score_that_is_no_number_is_never_accepted(stored: tuple[Any, Features]) -> None:
    calibration = stored[0].calibration
    assert calibration(torch.tensor([torch.nan, torch.inf])).tolist() == [1 / 101, 1 / 101]


@pytest.mark.parametrize("per_class", [False, True])
def test_ranks_by_comparisons_are_ranks(per_class: bool) -> None:
    detector = create("gmm").fit(samples()).calibrate(samples(203, seed=1), per_class=per_class)
    calibration, new = detector.calibration, samples(150, seed=2)
    scores = torch.cat([detector.score(new), calibration.scores, calibration.limits])
    classes = torch.arange(len(scores)) % 4 if per_class else None
    assert torch.equal(calibration(scores, classes), calibration.p_value(scores, classes))


def test_a_calibration_per_class(file: Path, alike: Any) -> None:
    guard = guarded(create("energy"), per_class=True, contrast=False)
    exported, judge, pixels = export(guard, file), LiveJudge(guard), noise(30, 7)
    alike(exported.judge(pixels), judge.judge(pixels), judge)
    assert exported.calibration.per_class


def test_features_in(stored: tuple[Any, Features], file: Path, alike: Any) -> None:
    detector, new = stored
    exported, judge = export(detector, file, features=new[:5]), LiveJudge(detector)
    columns = {name: new.column(name).numpy() for name in judge.columns}
    alike(exported.judge_features(columns), judge.judge_features(columns), judge)
    assert exported.columns == ("logits", "avg@layer3")
    assert {one.name for one in onnxruntime.InferenceSession(file).get_inputs()} == {"logits", "avg@layer3"}
    with pytest.raises(InputError, match="judges features, and images were given"):
        exported.judge(noise(1, 0))
    with pytest.raises(InputError, match="avg@layer3 is missing"):
        exported.judge_features({"logits": columns["logits"]})
    with pytest.raises(InputError, match=r"avg@layer3 has the shape \(40, 3\)"):
        exported.judge_features({**columns, "avg@layer3": columns["avg@layer3"][:, :3]})
    broken = columns["logits"].copy()
    broken[3] = np.nan
    with pytest.raises(InputError, match="Sample 3 has no finite score"):
        exported.judge_features({**columns, "logits": broken})


def test_a_program_of_torch(small: tuple[Guard, Exported], tmp_path: Path, alike: Any) -> None:
    guard, pixels = small[0], noise(21, 7)
    judge, file = LiveJudge(guard), tmp_path / "guard.pt2"
    live = judge.judge(pixels)
    alike(export(guard, file).judge(pixels), live, judge)
    with pytest.raises(InputError, match=r"may run code .* say so: trust=True"):
        heat_ood.load(file)
    opened = heat_ood.load(file, trust=True)
    opened.verify()
    alike(opened.judge(pixels[:1]), judge.judge(pixels[:1]), judge, among=live)
    logits, _, p_value, ood, _ = torch.export.load(file).module()(
        torch.from_numpy(pixels), torch.tensor(0.5, dtype=torch.float64)
    )
    assert logits.shape == (21, 3)
    assert torch.equal(ood, p_value <= 0.5)


class Functional(nn.Module):
    """Pooled and classified by functions, which no module tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 3, stride=2), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.b(F.relu(self.a(x))))
        return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), self.head.weight, self.head.bias)


class Hidden(nn.Module):
    """Reaches its parts through a list, so that no double stands for it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = small_network()[:6], nn.Linear(12, 3)
        self.parts = [self.body, self.head]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


@pytest.mark.parametrize("network", [Functional, Hidden])
def test_any_network_and_none_is_touched(network: Any, file: Path, alike: Any) -> None:
    torch.manual_seed(0)
    model = network().train()
    guard = guarded(HEAT(("gmm-std", "energy"), residual=None), model=model, layers=None)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    exported, judge, pixels = export(guard, file), LiveJudge(guard), noise(9, 7)
    alike(exported.judge(pixels), judge.judge(pixels), judge)
    assert all(module.training for module in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_the_file_describes_itself(small: tuple[Guard, Exported]) -> None:
    model = onnx.load(small[1].path)
    said = json.loads({entry.key: entry.value for entry in model.metadata_props}["heat-ood"])
    assert (said["format"], said["version"]) == ("heat-ood export", 1)
    assert said["preprocessing"] == HALF.to_dict()
    assert said["classes"] == ["ant", "bee", "cat"]
    assert said["about"]["calibration"]["samples"] == 240
    assert set(said["versions"]) == {"heat-ood", "torch", "onnx", "onnxscript", "onnxruntime"}
    shapes = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert shapes == ["n", 12, 10, 3]
    assert {node.domain for node in model.graph.node} == {""}


# What cannot be exported says why


@pytest.mark.parametrize(
    ("method", "why"),
    [("odin", "gradient"), ("gram", "maps of a model"), ("ensemble", "several models")],
)
def test_methods_that_read_more_than_features(method: str, why: str, file: Path) -> None:
    with pytest.raises(InputError, match=f"{method} cannot be exported: .*{why}"):
        export(create(method), file, features=samples(3))


@pytest.mark.parametrize("ending", [".onnx", ".pt2"])
def test_what_counts_by_its_excess(ending: str, file: Path, alike: Any) -> None:
    priors = ("energy", "gmm", "gmm@layer3")
    detector = HEAT(priors, (3, 1, 2), residual=None, excess=priors[1:]).fit(samples()).calibrate(samples(100, seed=1))
    new, judge = samples(40, seed=2), LiveJudge(detector)
    columns = {name: new.column(name).numpy() for name in judge.columns}
    exported = export(detector, file.with_suffix(ending), features=new[:5])
    alike(exported.judge_features(columns), judge.judge_features(columns), judge)


def test_stored_samples_beyond_a_size(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = create("knn", k=5).fit(samples()).calibrate(samples(100, seed=1))
    monkeypatch.setattr("heat_ood.export._writing.LARGEST", 10_000)
    with pytest.raises(InputError, match=r"knn cannot be exported: it keeps 13,\d\d\d bytes, and at most 10,000"):
        export(detector, file, features=samples(3))
    assert not file.exists()


def test_wishes_that_cannot_be_met(small: tuple[Guard, Exported], stored: tuple[Any, Features], tmp_path: Path) -> None:
    guard, (detector, new) = small[0], stored
    uncalibrated = create("energy").fit(samples())
    for wish, error in (
        (lambda: export(guard, tmp_path / "guard.txt"), "ends with .onnx or .pt2"),
        (lambda: export(guard, tmp_path / "a.onnx", fpr=1e-4), "needs at least 9,999 calibration samples"),
        (lambda: export(uncalibrated, tmp_path / "a.onnx", features=new), "has not been calibrated"),
        (lambda: export(detector, tmp_path / "a.onnx"), "does not know how wide they are"),
        (
            lambda: export(detector, tmp_path / "a.onnx", features=Features(avg=torch.rand(3, 12))),
            "avg@layer3 is missing",
        ),
        (lambda: export(guard, tmp_path / "a.onnx", half=True), "Pass compare="),
        (lambda: export(guard, tmp_path / "a.pt2", half=True), "in a .onnx file"),
        (lambda: export(guard, tmp_path / "a.onnx", half=True, quantise=True), "not both"),
        (lambda: export(guard, tmp_path / "a.onnx", preprocessing=Preprocessing((9, 9))), "prepared otherwise"),
    ):
        with pytest.raises(heat_ood.HeatError, match=error):
            wish()
    assert list(tmp_path.iterdir()) == []


def test_a_guard_that_does_not_know_its_images_is_told(file: Path, alike: Any) -> None:
    extractor = Extractor(small_network())
    parts = [[(HALF.normalised(noise(n, seed)), torch.arange(n) % 3)] for n, seed in ((150, 0), (60, 1))]
    train, held_out = (extractor.extract(part, progress=False) for part in parts)
    guard = extractor.guard(create("energy").fit(train).calibrate(held_out))
    with pytest.raises(InputError, match="does not know how images are prepared"):
        export(guard, file)
    exported, judge, pixels = export(guard, file, preprocessing=HALF), LiveJudge(guard, HALF), noise(9, 5)
    alike(exported.judge(pixels), judge.judge(pixels), judge)


class Wayward(nn.Module):
    """Answers otherwise where it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x * 2 if torch.compiler.is_exporting() else x)


def test_a_graph_that_says_something_else_is_not_written(file: Path) -> None:
    guard = guarded(create("energy"), model=Wayward(), layers=None, contrast=False)
    with pytest.raises(InputError, match="judges otherwise than the guard"):
        export(guard, file)
    assert not file.exists()


def test_pixels_are_looked_at(small: tuple[Guard, Exported]) -> None:
    exported = small[1]
    for pixels in (noise(2, 0).astype(np.float32), noise(2, 0)[:, :5], noise(2, 0)[0], noise(2, 0)[:0]):
        with pytest.raises(InputError):
            exported.judge(pixels)
    with pytest.raises(InputError, match="judges images, and features were given"):
        exported.judge_features({})


# Less precision


@pytest.mark.parametrize("how", ["half", "quantise"])
def test_less_precision_says_what_it_changed(small: tuple[Guard, Exported], how: str, tmp_path: Path) -> None:
    guard, exact = small[0], small[1]
    known, strange = [noise(40, 5), noise(20, 6)], [noise(50, 7, level=60)]
    made = export(guard, tmp_path / "less.onnx", compare=(known, strange), **{how: True})
    said = made.facts.reduced
    assert said is not None
    assert said.images == 110
    batches = [*known, *strange]  # what is quantised as it flows depends on the batch
    off = [np.abs(exact.judge(pixels).score - made.judge(pixels).score).max() for pixels in batches]
    spread = float(exact.calibration.scores.double().std(correction=0))
    assert said.largest == pytest.approx(float(max(off)) / spread, rel=1e-3)
    assert said.largest > 0
    assert said.usual <= said.largest
    assert abs(said.auroc - said.auroc_reduced) < 0.1
    assert "spreads" in str(said)
    reopened = heat_ood.load(tmp_path / "less.onnx")
    reopened.verify()
    assert reopened.about["reduced"]["how"] == ("half" if how == "half" else "quantised")
    kinds = {t.data_type for t in onnx.load(tmp_path / "less.onnx").graph.initializer}
    assert (onnx.TensorProto.FLOAT16 if how == "half" else onnx.TensorProto.UINT8) in kinds
