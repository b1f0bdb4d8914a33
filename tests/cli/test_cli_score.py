"""``heat-ood calibrate``, ``score`` and ``evaluate``."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from cli_data import EXTRACT, Run
from heat_ood import HEAT, Features

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")


@pytest.mark.parametrize("per_class", [False, True])
def test_calibrate_saves_in_place(run: Run, detector: Path, per_class: bool) -> None:
    before = HEAT.load(detector).score(Features.open("test"))
    result = run("calibrate", detector, "test", *(["--per-class"] if per_class else []), "--json")
    assert result["calibration"] == 120
    after = HEAT.load(detector)
    assert torch.equal(after.score(Features.open("test")), before)
    assert after.calibration is not None
    assert after.calibration.per_class == per_class
    rows = run("score", detector, "far", "--fpr", 0.2, "--json")["rows"]
    assert [row["p_value"] for row in rows] == after.p_value(Features.open("far")).tolist()


def test_score_as_json_csv_and_a_table(run: Run, detector: Path) -> None:
    trained, far = HEAT.load(detector), Features.open("far")
    result = run("score", detector, "far", "--fpr", 0.1, "--csv", "out.csv", "--json")
    assert result["fpr"] == 0.1
    assert [row["score"] for row in result["rows"]] == trained.score(far).tolist()
    assert [row["ood"] for row in result["rows"]] == trained.predict(far, fpr=0.1).tolist()
    assert result["flagged"] == sum(row["ood"] for row in result["rows"])
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["p_value"]) for row in rows] == trained.p_value(far).tolist()
    text = run("score", detector, "far", "--limit-rows", 3).stdout
    assert "the 3 most unusual of 120 samples" in text
    assert f"{result['rows'][int(trained.score(far).argmax())]['score']:.4f}" in text
    assert "at a false-alarm rate of 0.05" in text


def test_a_csv_file_is_written_whole_or_not_at_all(run: Run, detector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("score", detector, "far", "--csv", "new/folder/out.csv")
    run(*command)
    before = Path("new/folder/out.csv").read_bytes()
    assert len(before.splitlines()) == 121

    def broken(self: csv.DictWriter[str], rows: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", broken)
    assert "No space left" in run(*command, code=1).stderr
    assert Path("new/folder/out.csv").read_bytes() == before
    assert [file.name for file in Path("new/folder").iterdir()] == ["out.csv"]


def test_score_before_calibration_gives_scores_alone(run: Run, stores: Path) -> None:
    HEAT(residual=None).fit(Features.open("train")).save("d")
    result = run("score", "d", "test", "--json")
    assert result["flagged"] is None
    assert set(result["rows"][0]) == {"sample", "score"}
    assert "not calibrated" in run("score", "d", "test").stderr
    for option in (("--fpr", 0.1), ("--fail-on-ood",)):
        assert "has not been calibrated" in run("score", "d", "test", *option, code=1).stderr


def test_score_can_fail_on_ood(run: Run, detector: Path) -> None:
    assert run("score", detector, "far", "--fail-on-ood", "--json", code=3)["flagged"] > 0
    held = Features.open("held")
    held[HEAT.load(detector).score(held).argmin().reshape(1)].save("usual")
    assert run("score", detector, "usual", "--fail-on-ood", "--json")["flagged"] == 0


def test_score_refuses_a_rate_that_cannot_be_reached_before_it_reads_anything(run: Run, detector: Path) -> None:
    assert "calibration samples" in run("score", detector, "absent", "--fpr", 1e-6, code=1).stderr


def test_evaluate(run: Run, detector: Path) -> None:
    sets = ("--id", "test", "--ood", "far=far", "--ood", "near")
    result = run("evaluate", detector, *sets, "--save", "a.md", "--save", "b.csv", "--json")
    assert [row["name"] for row in result["rows"]] == ["far", "near"]
    assert "fpr_at_95_id" in Path("a.md").read_text()
    assert Path("b.csv").read_text().startswith("name,")
    text = run("evaluate", detector, *sets).stdout
    assert f"{100 * result['average']['auroc']:.1f}" in text
    assert "fpr_at_95_ood ↓" in text


def replace_seen(features: Features) -> Features:
    """The same features, of which nobody knows where they came from."""
    features.seen = None
    return features


def test_images_are_scored_through_the_model_and_named(run: Run, pictures: Path) -> None:
    model = EXTRACT[1:]
    run("extract", *model, "--images", pictures, "--out", "f")
    run("fit", "f", "--out", "d", "--no-residual")
    others = pictures.rename(pictures.with_name("others"))
    for file in sorted(others.rglob("*.png")):
        with Image.open(file) as image:
            turned = image.transpose(Image.Transpose.ROTATE_180)
        (pictures / file.relative_to(others)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, pictures / file.relative_to(others))
        turned.save(file)
    run("calibrate", "d", others, *model)
    stored, live = (
        run("score", "d", "f", "--fpr", 0.1, "--json"),
        run("score", "d", pictures, *model, "--fpr", 0.1, "--json"),
    )
    assert stored["rows"] == live["rows"]
    assert live["rows"][4]["file"] == "bee/0.png"
    result = run("evaluate", "d", "--id", "f", "--ood", f"same={pictures}", *model, "--json")
    assert result["rows"][0]["auroc"] == 0.5
    HEAT(residual=None).fit(replace_seen(Features.open("f"))).save("unknown")
    assert "--model" in run("score", "unknown", pictures, code=1).stderr
    other = ("--model", "tiny_model_of_cli:slow", "--size", 8)
    assert "two different models" in run("score", "d", pictures, *other, "--fpr", 0.1, code=1).stderr


@pytest.mark.parametrize("path", ["absent", "empty"])
def test_features_that_are_not_there(run: Run, detector: Path, path: str) -> None:
    Path("empty").mkdir()
    assert run("score", detector, path, code=1).stderr.startswith("error: ")
