"""``heat-ood report``."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from heat_ood.cli import app
from heat_ood.evaluation import evaluate_scores
from heat_ood.report import report
from results_data import rich, small


def run(*arguments: object):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_one_file_becomes_a_page_with_its_summary_in_the_terminal(tmp_path):
    small().save(tmp_path / "results.json")
    out = tmp_path / "new" / "page.html"
    result = run(tmp_path / "results.json", "--out", out)
    assert result.exit_code == 0, result.output
    assert out.read_text(encoding="utf-8") == report(small())
    said = " ".join(result.stdout.split())
    assert "HEAT has the lowest average FPR95" in said
    assert "HEAT does not win everywhere" in said


def test_several_files_and_folders_are_compared(tmp_path):
    (tmp_path / "a").mkdir()
    rich().save(tmp_path / "a" / "results.json")
    small().save(tmp_path / "b.json")
    out = tmp_path / "page.html"
    result = run(tmp_path / "a", tmp_path / "b.json", "--out", out, "--json")
    assert [r["suite"] for r in json.loads(result.stdout)["results"]] == ["demo", "small"]
    assert "Two runs compared" in out.read_text(encoding="utf-8")


def test_what_evaluate_saved_has_a_page(tmp_path):
    """Beside results of a benchmark too, and from a file of an older version."""
    evaluation = evaluate_scores([0.0, 1.0, 2.0], {"far": [3.0, 4.0], "near": [1.0, 5.0]}, curves=True)
    evaluation.save(tmp_path / "e.json")
    small().save(tmp_path / "b.json")
    result = run(tmp_path / "e.json", "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "three ID samples" in result.stdout or "3 ID samples" in result.stdout
    assert "the easiest set is far" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert run(tmp_path / "e.json", tmp_path / "b.json", "--out", tmp_path / "both.html").exit_code == 0

    old = json.loads(replace(evaluation, curves={}).to_json()) | {"version": 1}
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert run(tmp_path / "old.json", "--out", tmp_path / "page.html").exit_code == 0
    (tmp_path / "old.json").write_text(json.dumps(old | {"rows": 7}))
    broken = run(tmp_path / "old.json", "--out", tmp_path / "other.html")
    assert broken.exit_code == 1
    assert "old.json" in broken.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("gone.json", None, 1, "gone.json"),
        ("odd.json", "{}", 1, "odd.json is not of the format"),
        ("fine.json", small().to_json(), 2, "should end in .html"),
    ],
)
def test_what_cannot_be_reported(tmp_path, name, content, code, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    result = run(tmp_path / name, "--out", tmp_path / ("page.pdf" if code == 2 else "page.html"))
    assert result.exit_code == code
    plain = re.sub(r"[│\s]+", " ", result.stderr)
    assert message.replace(" ", "") in plain.replace(" ", "")
    assert not list(tmp_path.glob("page.*"))
