"""``heat-ood evaluate``: what its table has room for, and what it keeps for a report."""

from __future__ import annotations

import base64
import re
import shutil
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from cli_data import EXTRACT, Run
from heat_ood import Evaluation, Features

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")


@pytest.mark.parametrize(
    "names", [("far", "near"), ("a-set-whose-name-is-far-too-long-for-one-column-of-a-table", "b")]
)
@pytest.mark.parametrize("columns", [None, 80, 200])
def test_the_table_of_evaluate_fits(
    run: Run, detector: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], columns: int | None
) -> None:
    """Of 80 columns in a terminal and in a pipe, and all metrics where there is room."""
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
    text = run("evaluate", detector, "--id", "test", "--ood", f"{names[0]}=far", "--ood", f"{names[1]}=near").stdout
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= (columns if columns == 200 else 80)
    whole = "".join(lines)
    for shown in ("AUROC ↑", "fpr_at_95_id ↓", "fpr_at_95_ood ↓", "average"):
        assert shown in whole
    assert ("AUPR-out ↑" in whole) == (columns == 200)
    assert ("--save" in whole) == (columns != 200)


def test_evaluate_keeps_what_a_report_shows(run: Run, detector: Path) -> None:
    run("evaluate", detector, "--id", "test", "--ood", "far", "--save", "e.json")
    found = Evaluation.from_json(Path("e.json").read_text(encoding="utf-8"))
    assert list(found.curves) == ["far"]
    assert found.pictures == ()
    assert found.about["method"] == "HEAT"
    assert found.about["id"] == "test"
    assert "created" in found.about
    test = Features.open("test")
    assert found.about["accuracy"] == float((test.logits.argmax(1) == test.labels).double().mean())


@pytest.mark.parametrize("stored", [True, False])
def test_evaluate_keeps_thumbnails_of_known_images(run: Run, pictures: Path, stored: bool) -> None:
    run("extract", *EXTRACT[1:], "--images", pictures, "--out", "f")
    run("fit", "f", "--out", "d", "--no-residual")
    sets, model = (("f", "same=f"), ()) if stored else ((pictures, f"same={pictures}"), EXTRACT[1:])
    command = ("evaluate", "d", "--id", sets[0], "--ood", sets[1], *model)
    run(*command, "--save", "e.json")
    found = Evaluation.from_json(Path("e.json").read_text(encoding="utf-8"))
    scores = {row["file"]: row["score"] for row in run("score", "d", "f", "--json")["rows"]}
    ordered = sorted(scores, key=lambda file: -scores[file])
    assert [p.file for p in found.pictures if p.set != "same"] == ordered[:12]
    assert [p.file for p in found.pictures if p.set == "same"] == ordered[::-1][:12]
    first = found.pictures[0]
    assert first.scores == {"HEAT": pytest.approx(scores[ordered[0]])}
    copy = BytesIO(base64.b64decode(first.image.partition(",")[2]))
    with Image.open(copy) as image, Image.open(pictures / ordered[0]) as original:
        assert image.tobytes() == original.tobytes()
    run(*command, "--save", "e.json", "--no-thumbnails")
    assert "data:image" not in Path("e.json").read_text(encoding="utf-8")
    shutil.rmtree(pictures / "bee")
    if stored:
        run(*command, "--save", "e.json")
        assert "data:image" not in Path("e.json").read_text(encoding="utf-8"), "not the images any more"
