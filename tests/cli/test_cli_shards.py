"""``extract --shard``, ``merge`` and ``score --shard``: the same as one run, by processes that do not talk."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli_data import EXTRACT, Run, features
from heat_ood import Features
from heat_ood.features import digest_of_samples
from shard_data import sharded

arrow = pytest.importorskip("pyarrow", reason="pip install heat-ood[parquet]")
from pyarrow import parquet  # noqa: E402

FOUR = (*EXTRACT[:-1], 4)
"""With batches of four, so that a block of pictures is whole batches."""


def tar_of(file: Path, pictures: list[tuple[str, Path, int | None]]) -> None:
    with tarfile.open(file, "w") as archive:
        for key, picture, label in pictures:
            archive.add(picture, f"{key}.png")
            if label is not None:
                info = tarfile.TarInfo(f"{key}.cls")
                info.size = len(str(label))
                archive.addfile(info, io.BytesIO(str(label).encode()))


def sources(pictures: Path) -> dict[str, Path]:
    """The same twelve pictures in every way in which they can be given."""
    files = sorted(pictures.rglob("*.png"))
    labels = [i // 4 for i in range(12)]
    here = pictures.parent
    np.savez(here / "x.npz", images=np.stack([np.asarray(Image.open(f)) for f in files]), labels=np.array(labels))
    lines = [f"{f.relative_to(here)}\t{label}\n" for f, label in zip(files, labels, strict=True)]
    (here / "list.txt").write_text("\n".join(lines))  # empty lines between are no paths
    table = {"path": [str(f) for f in files], "label": labels}
    parquet.write_table(arrow.table(table), here / "list.parquet", row_group_size=5)
    named = {"path": table["path"], "class": [f.parent.name for f in files], "size": labels}
    parquet.write_table(arrow.table(named), here / "named.parquet", row_group_size=5)
    (here / "tars").mkdir()
    for i in range(3):
        some = [(f"{n:04d}", files[n], labels[n]) for n in range(4 * i, 4 * i + 4)]
        tar_of(here / "tars" / f"t-{i}.tar", some)
    names = ("x.npz", "list.txt", "list.parquet", "named.parquet", "tars", "tars/t-{0..2}.tar")
    return {"pictures": pictures} | {name: here / name for name in names}


KINDS = ("pictures", "x.npz", "list.txt", "list.parquet", "named.parquet", "tars", "tars/t-{0..2}.tar")


@pytest.mark.parametrize("kind", KINDS)
def test_shards_in_any_order_are_the_one_run(run: Run, pictures: Path, kind: str) -> None:
    images = sources(pictures)[kind]
    run(*FOUR, "--images", images, "--out", "one")
    for number in (2, 0, 1):
        result = run(*FOUR, "--images", images, "--out", "many", "--shard", f"{number}/3", "--json")
        assert (result["samples"], result["features"]) == (4, f"many/shard-0000{number}")
    merged = run("merge", "many", "--json")
    assert (merged["samples"], merged["shards"], merged["labels"]) == (12, 3, True)
    one, many = Features.open("one"), Features.open("many", verify=True)
    assert digest_of_samples(many) == digest_of_samples(one)
    assert many.labels.tolist() == [i // 4 for i in range(12)]
    assert many.fingerprint == one.fingerprint
    assert many.seen.preprocessing == one.seen.preprocessing


def test_a_shard_that_is_there_is_reused_and_one_that_was_cut_off_goes_on(
    run: Run, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*EXTRACT[:-1], 2, "--images", pictures, "--out", "many", "--shard")
    run(*arguments, "0/2")
    before = {file: file.stat().st_mtime_ns for file in Path("many/shard-00000").iterdir()}
    assert "are there already" in run(*arguments, "0/2").stderr
    assert {file: file.stat().st_mtime_ns for file in Path("many/shard-00000").iterdir()} == before

    from heat_ood.features._writer import Writer

    append, calls = Writer.append, []

    def fail(self: Writer, batch: Features) -> None:
        calls.append(len(batch))
        if len(calls) == 2:
            raise KeyboardInterrupt
        append(self, batch)

    monkeypatch.setattr(Writer, "append", fail)
    run(*arguments, "1/2", code=130)
    assert "shard-00001 is not finished (2 samples" in " ".join(run("merge", "many", code=1).stderr.split())
    run(*arguments, "1/2")
    assert calls == [2, 2, 2, 2]  # the third of three batches is the fourth call: the first was not read again
    run("merge", "many")
    run(*EXTRACT[:-1], 2, "--images", pictures, "--out", "one")
    assert digest_of_samples(Features.open("many")) == digest_of_samples(Features.open("one"))


def test_what_is_missing_mixed_or_changed_is_said(run: Run, pictures: Path) -> None:
    arguments = (*FOUR, "--images", pictures, "--out", "many")
    run(*arguments, "--shard", "0/3")
    error = run("merge", "many", code=1).stderr
    assert "shard-00001, shard-00002 are missing" in error
    assert "--shard 1/3" in error
    assert "shard-00001, shard-00002 are missing" in run("info", "many", code=1).stderr
    assert "begun with other images" in run(*arguments, "--shard", "0/2", code=1).stderr
    run(*arguments, "--shard", "1/2")
    assert "not cut from the same samples" in run("merge", "many", code=1).stderr
    shutil.rmtree("many/shard-00001")
    run(*arguments, "--shard", "1/3", "--size", 6)
    run(*arguments, "--shard", "2/3")
    assert "prepared otherwise" in run("merge", "many", code=1).stderr
    run(*arguments, "--shard", "1/3", "--overwrite")
    run("merge", "many")
    assert len(Features.open("many")) == 12
    assert run("info", "many", "--json", "--verify")["shards"] == 3
    for wrong in ("3/3", "x", "0/13"):
        run(*FOUR, "--images", pictures, "--out", "other", "--shard", wrong, code=1)
    run(*FOUR, "--images", pictures, "--out", "one")
    assert "not in shards" in run(*FOUR, "--images", pictures, "--out", "one", "--shard", "0/3", code=1).stderr
    assert "not in shards" in run("merge", "one", code=1).stderr
    run(*FOUR, "--images", pictures, "--out", "many", code=1)


def test_unreadable_images_are_skipped_in_their_shard(run: Run, pictures: Path) -> None:
    (pictures / "bee" / "1.png").write_bytes(b"no picture")
    for number in range(3):
        run(*FOUR, "--images", pictures, "--out", "many", "--shard", f"{number}/3", "--skip-unreadable")
    run("merge", "many")
    assert len(Features.open("many")) == 11
    assert json.loads(Path("many.json").read_text())["skipped"].keys() == {"bee/1.png"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "x.png\tone\ny.png\ttwo\n", "not whole numbers"),
        ("a.txt", "x.png\t1\ny.png\n", "not whole numbers"),
        ("a.txt", "\n\n", "empty"),
        ("a.txt", "x\0y\n", "no text"),
        ("a.txt", "x" * 70_000, "too long"),
        ("a.parquet", "no parquet", "no Parquet file"),
        ("a.tar", "no tar file at all", "cannot be read"),
        ("a-{1..2}.tar", "", "There is no"),
    ],
)
def test_lists_and_tars_that_cannot_be_used(run: Run, name: str, content: str, words: str) -> None:
    if content:
        Path(name).write_text(content)
    assert words in run(*FOUR, "--images", name, "--out", "f", code=1).stderr


def test_tars_with_labels_for_some(run: Run, pictures: Path) -> None:
    files = sorted(pictures.rglob("*.png"))[:2]
    tar_of(Path("a.tar"), [("a", files[0], 1), ("b", files[1], None)])
    assert "others have none, b.png" in run(*FOUR, "--images", "a.tar", "--out", "f", code=1).stderr
    run(*FOUR, "--images", "a.tar", "--out", "f", "--no-labels")
    assert Features.open("f").labels is None
    tar_of(Path("b.tar"), [("a", files[0], 1), ("b", Path("a.tar"), 1)])
    assert "b.png in b.tar cannot be read" in run(*FOUR, "--images", "b.tar", "--out", "g", code=1).stderr
    run(*FOUR, "--images", "b.tar", "--out", "g", "--skip-unreadable")
    assert len(Features.open("g")) == 1


# Scores


def test_scores_of_shards_are_those_of_one_run(run: Run, detector: Path) -> None:
    whole = features(7, 200, 1.0)
    sharded(whole, Path("new"), (90, 30, 80))
    run("score", detector, "new", "--out", "one.parquet", "--csv", "one.csv")
    for number in (1, 2, 0):
        run("score", detector, "new", "--out", "scores", "--shard", f"{number}/3")
        run("score", detector, "new", "--csv", "sheets", "--shard", f"{number}/3")
    times = {file: file.stat().st_mtime_ns for file in Path("scores").iterdir()}
    assert "already" in run("score", detector, "new", "--out", "scores", "--shard", "1/3").stderr
    assert {file: file.stat().st_mtime_ns for file in Path("scores").iterdir()} == times
    result = run("merge", "scores", "--json")
    run("merge", "sheets")
    one, many = parquet.read_table("one.parquet"), parquet.read_table(result["scores"])
    assert many.equals(one)
    assert (result["samples"], result["flagged"]) == (200, int(np.sum(one["ood"].to_numpy())))
    assert Path("sheets/scores.csv").read_bytes() == Path("one.csv").read_bytes()


def test_a_table_has_what_was_decided_and_why(run: Run, pictures: Path, here: Path) -> None:
    run(*FOUR, "--images", pictures, "--out", "many", "--shard", "0/2")
    run(*FOUR, "--images", pictures, "--out", "many", "--shard", "1/2")
    run("merge", "many")
    from heat_ood import HEAT, Residual

    stored = Features.open("many")
    detector = HEAT(priors=("gmm", "energy"), residual=Residual(epochs=1, hidden=8)).fit(stored[::2])
    detector.calibrate(stored[1::2]).save(here / "d")
    run("score", "d", "many", "--out", "s.parquet", "--fpr", 0.5)
    run("score", "d", "many", "--out", "s.csv", "--fpr", 0.5)
    table = parquet.read_table("s.parquet")
    assert table.column_names[:7] == ["sample", "path", "class", "class_name", "score", "p_value", "ood"]
    terms = detector.energies(stored)
    assert set(table.column_names[7:]) == set(terms) - {"score"}
    for name, values in (("score", detector.score(stored)), ("p_value", detector.p_value(stored)), *terms.items()):
        assert np.array_equal(table[name].to_numpy(), values.numpy())
    assert table["ood"].to_pylist() == detector.predict(stored, fpr=0.5).tolist()
    assert table["class"].to_pylist() == stored.logits.argmax(1).tolist()
    assert table["class_name"].to_pylist() == [("ant", "bee", "cat")[i] for i in stored.logits.argmax(1)]
    assert table["path"].to_pylist() == [f"{c}/{i}.png" for c in ("ant", "bee", "cat") for i in range(4)]
    rows = list(csv.DictReader(Path("s.csv").read_text().splitlines()))
    assert [row["path"] for row in rows] == table["path"].to_pylist()
    assert torch.tensor([float(row["score"]) for row in rows]).equal(detector.score(stored))
    assert "end in .parquet or .csv" in run("score", "d", "many", "--out", "s.xls", code=1).stderr


def check_alike(one: Any, other: Any) -> None:
    """The same tables; other batches may have moved the last digits of numbers."""
    assert one.schema.equals(other.schema)
    for name in one.column_names:
        found, expected = one[name].to_pylist(), other[name].to_pylist()
        assert found == (pytest.approx(expected, abs=1e-5) if isinstance(expected[0], float) else expected)


def test_images_are_scored_by_shard(run: Run, pictures: Path, here: Path) -> None:
    from heat_ood import HEAT

    run(*FOUR, "--images", pictures, "--out", "f")
    HEAT(priors=("gmm", "energy"), residual=None).fit(Features.open("f")).save(here / "d")
    model = ("--model", "tiny_model_of_cli:small", "--batch-size", 4)
    run("score", "d", pictures, *model, "--out", "one.parquet")
    for number in range(3):
        run("score", "d", pictures, *model, "--out", "scores", "--shard", f"{number}/3")
    run("merge", "scores")
    check_alike(parquet.read_table("scores/scores.parquet"), parquet.read_table("one.parquet"))


def test_a_shard_of_images_that_was_cut_off_while_it_was_scored_goes_on(
    run: Run, pictures: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heat_ood import HEAT
    from heat_ood.features._writer import Writer

    run(*FOUR, "--images", pictures, "--out", "f")
    HEAT(priors=("gmm", "energy"), residual=None).fit(Features.open("f")).save(here / "d")
    model = ("--model", "tiny_model_of_cli:small", "--batch-size", 2)
    shard = ("score", "d", pictures, *model, "--out", "scores", "--shard", "1/2")
    append, calls = Writer.append, []

    def fail(self: Writer, batch: Features) -> None:
        calls.append(len(batch))
        if len(calls) == 3:
            raise KeyboardInterrupt
        append(self, batch)

    monkeypatch.setattr(Writer, "append", fail)
    run(*shard, code=130)
    assert calls == [2, 2, 2]
    run(*shard)
    assert calls == [2, 2, 2, 2]  # of three batches, two were there
    assert not Path("scores/unfinished").exists()
    found = parquet.read_table("scores/shard-00001.parquet")
    run("score", "d", pictures, *model, "--out", "one.parquet")
    whole = parquet.read_table("one.parquet")
    check_alike(found.drop(["sample"]), whole.slice(len(whole) - len(found)).drop(["sample"]))

    calls[:] = []
    for file in Path("scores").glob("shard-*"):
        file.unlink()
    run(*shard, code=130)
    left = list(Path("scores/unfinished").iterdir())
    picture = sorted(pictures.rglob("*.png"))[-1]
    picture.write_bytes(sorted(pictures.rglob("*.png"))[0].read_bytes())
    run(*shard)  # an image is another one now: begun anew, and what was there is gone
    assert calls == [2, 2, 2, 2, 2, 2]
    assert len(left) == 1
    assert not left[0].exists()


def change(folder: Path, number: int, **changes: Any) -> None:
    file = folder / f"shard-{number:05d}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_scores_that_are_missing_damaged_or_of_others_are_refused(run: Run, detector: Path) -> None:
    score = ("score", detector, "test", "--csv", "scores", "--shard")
    run(*score, "0/3")
    run(*score, "2/3")
    assert "shard-00001 of 3 is missing" in run("merge", "scores", code=1).stderr
    run("score", detector, "far", "--csv", "scores", "--shard", "1/3")
    assert "do not go together" in run("merge", "scores", code=1).stderr
    run(*score, "1/3")
    run("merge", "scores")
    file = Path("scores/shard-00001.csv")
    text = file.read_text()
    file.write_text(text[:-3] + "9\n")
    assert "checksum does not match" in run("merge", "scores", code=1).stderr
    run(*score, "1/3")
    assert file.read_text() == text
    for bad in ({"shard": [1, 2]}, {"shard": "x"}, {"file": "../test/manifest.json"}, {"columns": []}):
        kept = Path("scores/shard-00001.json").read_text()
        change(Path("scores"), 1, **bad)
        run("merge", "scores", code=1)
        Path("scores/shard-00001.json").write_text(kept)
    run("merge", "scores")
    assert "pass --out FOLDER" in run("score", detector, "test", "--shard", "0/3", code=2).stderr.replace("\n", " ")
    assert "There are no shards" in run("merge", ".", code=1).stderr


# Elsewhere


def test_the_whole_way_by_urls(
    run: Run, pictures: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="pip install heat-ood[remote]")
    from heat_ood import HEAT

    monkeypatch.setenv("HEAT_OOD_CACHE", str(tmp_path / "cache"))
    bucket = f"memory://{tmp_path.name}"
    run(*FOUR, "--images", pictures, "--out", "one")
    for number in (1, 0, 2):
        result = run(*FOUR, "--images", pictures, "--out", f"{bucket}/f", "--shard", f"{number}/3", "--json")
        assert result["features"] == f"{bucket}/f/shard-0000{number}"
    assert "there already" in run(*FOUR, "--images", pictures, "--out", f"{bucket}/f", "--shard", "0/3").stderr
    merged = run("merge", f"{bucket}/f", "--json")
    assert (merged["samples"], merged["shards"]) == (12, 3)
    beside = json.loads(fsspec.open(f"{bucket}/f.json", "rt").open().read())
    assert beside["classes"] == ["ant", "bee", "cat"]
    assert beside["preprocessing"] == json.loads(Path("one.json").read_text())["preprocessing"]
    assert digest_of_samples(Features.open(f"{bucket}/f")) == digest_of_samples(Features.open("one"))
    HEAT(priors=("gmm", "energy"), residual=None).fit(Features.open("one")).save(here / "d")
    run("score", "d", "one", "--csv", "one.csv")
    for number in (1, 0):
        run("score", "d", f"{bucket}/f", "--csv", f"{bucket}/s", "--shard", f"{number}/2")
    assert "already" in run("score", "d", f"{bucket}/f", "--csv", f"{bucket}/s", "--shard", "0/2").stderr
    assert run("merge", f"{bucket}/s", "--json")["scores"] == f"{bucket}/s/scores.csv"
    rows = list(csv.DictReader(fsspec.open(f"{bucket}/s/scores.csv", "rt").open().read().splitlines()))
    local = list(csv.DictReader(Path("one.csv").read_text().splitlines()))
    scores = [float(row["score"]) for row in local]
    assert [float(row["score"]) for row in rows] == pytest.approx(scores, abs=1e-5)
    run("score", "d", f"{bucket}/f", "--out", f"{bucket}/all.parquet")
    table = parquet.read_table(fsspec.open(f"{bucket}/all.parquet").open())
    assert table["score"].to_pylist() == pytest.approx(scores, abs=1e-5)
    assert table["path"].to_pylist() == [row["file"] for row in rows] == [row["file"] for row in local]
