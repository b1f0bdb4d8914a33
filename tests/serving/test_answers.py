"""What the service answers is what the guard says, however the samples were sent."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from heat_ood import HEAT, Features, Residual, __version__, create
from heat_ood.guarding import LiveJudge
from serving_data import HALF, Pictures, encoded, make_guard

Ask = Callable[..., TestClient]
NEW = Pictures(6, 7).pixels


def npy(values: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def sent(client: TestClient, content: bytes, kind: str = "image/png", **params: Any) -> Any:
    found = client.post("/v1/score", content=content, headers={"content-type": kind}, params=params)
    assert found.status_code == 200, found.text
    return found.json()


def columns_of(judge: LiveJudge) -> dict[str, np.ndarray[Any, Any]]:
    assert judge.guard is not None
    _, features = judge.guard.read(torch.stack([HALF(Image.fromarray(p)) for p in NEW]))
    return {name: features.column(name).numpy() for name in judge.columns}


def same(results: Any, judge: LiveJudge, fpr: float = 0.05) -> None:
    """What was answered is what the guard says of the new pictures."""
    assert judge.guard is not None
    told = judge.guard(torch.stack([HALF(Image.fromarray(p)) for p in NEW]))
    np.testing.assert_allclose([row["score"] for row in results], told.score, rtol=1e-4, atol=1e-5)
    assert [row["p_value"] for row in results] == told.p_value.tolist()
    assert [row["ood"] for row in results] == (told.p_value <= fpr).tolist()


def test_one_image_and_several_are_judged_as_the_guard_judges_them(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge)
    alone = [sent(client, encoded(p))["results"][0] for p in NEW]
    files = [("any", (f"{i}.png", encoded(p), "image/png")) for i, p in enumerate(NEW)]
    together = client.post("/v1/score", files=files).json()
    same(alone, judge)
    same(together["results"], judge)
    assert together["fpr"] == 0.05
    assert [row["name"] for row in together["results"]] == [f"{i}.png" for i in range(len(NEW))]
    assert alone[0]["name"] is None
    assert sent(client, encoded(NEW[0]), "application/octet-stream")["results"] == alone[:1]


def test_the_class_has_its_name_and_probability(ask: Ask, judge: LiveJudge) -> None:
    found = sent(ask(judge), encoded(NEW[0]))["results"][0]["class"]
    assert judge.guard is not None
    logits = judge.guard(HALF(Image.fromarray(NEW[0]))[None]).logits[0]
    assert found["index"] == int(logits.argmax())
    assert found["name"] == Pictures.classes[found["index"]]
    assert found["probability"] == pytest.approx(float(logits.softmax(0).max()), rel=1e-6)


def test_features_by_every_way_are_judged_alike(ask: Ask, judge: LiveJudge) -> None:
    client, columns = ask(judge), columns_of(judge)
    written = json.dumps({"features": {name: column.tolist() for name, column in columns.items()}})
    same(sent(client, written.encode(), "application/json")["results"], judge)
    files = [(name, (f"{name}.npy", npy(column.astype(np.float64)))) for name, column in columns.items()]
    same(client.post("/v1/score", files=files).json()["results"], judge)
    fortran = [(name, (f"{name}.npy", npy(np.asfortranarray(column)))) for name, column in columns.items()]
    same(client.post("/v1/score", files=fortran).json()["results"], judge)


def test_an_array_alone_where_one_column_is_judged(ask: Ask) -> None:
    known = [Features(avg=torch.randn(n, 4, generator=torch.Generator().manual_seed(n))) for n in (90, 200, 5)]
    detector = create("knn").fit(known[0]).calibrate(known[1])
    client = ask(LiveJudge(detector))
    found = sent(client, npy(known[2].avg.numpy()), "application/x-npy")["results"]
    assert [row["p_value"] for row in found] == detector.p_value(known[2]).tolist()
    assert found[0]["class"] is None
    assert client.get("/v1/info").json()["takes"] == ["features"]
    assert client.get("/readyz").status_code == 200
    one = sent(client, npy(known[2].avg.numpy()[0]), "application/x-npy")["results"]
    assert one == found[:1]


@pytest.mark.parametrize(
    "detector",
    [
        HEAT(("gmm", "energy"), weights=(1, 3), residual=None),
        HEAT(("gmm", "energy"), residual=Residual(epochs=1, hidden=8)),
        HEAT(("gmm", "energy"), residual=Residual(epochs=1, hidden=8, joint=True)),
        HEAT(("gmm", "energy"), weights=(1, 3), residual=None, excess=("gmm",)),
        HEAT(("gmm", "energy"), residual=Residual(epochs=1, hidden=8, joint=True), excess=("gmm",)),
    ],
    ids=["plain", "each corrected", "corrected together", "excess", "excess, corrected"],
)
def test_terms_add_up_to_the_score(ask: Ask, detector: HEAT) -> None:
    client = ask(LiveJudge(make_guard(detector)))
    for row in sent(client, encoded(NEW[1]))["results"]:
        names = [term["name"] for term in row["terms"]]
        parts = ["gmm", "energy"] if not detector.excess else ["energy", "excess"]
        assert names == [*parts, *(["correction"] if detector.residual is not None else [])]
        assert sum(term["value"] for term in row["terms"]) == pytest.approx(row["score"], rel=1e-4, abs=1e-5)
        assert set(row["energies"]) >= {"prior/gmm", "prior/energy"}


@pytest.mark.parametrize("detector", [HEAT(("gmm", "energy"), beta=1.0, residual=None), create("msp")])
def test_no_terms_where_the_score_is_no_mean(ask: Ask, detector: Any) -> None:
    assert sent(ask(LiveJudge(make_guard(detector))), encoded(NEW[1]))["results"][0]["terms"] is None


def test_the_false_alarm_rate_is_the_one_asked_for(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge, fpr=0.1)
    p_value = sent(client, encoded(NEW[0]))["results"][0]["p_value"]
    above, below = (sent(client, encoded(NEW[0]), fpr=p_value + step) for step in (0.001, -0.001))
    assert (above["results"][0]["verdict"], above["results"][0]["ood"]) == ("unlike the training data", True)
    assert (below["results"][0]["verdict"], below["results"][0]["ood"]) == ("like the training data", False)
    assert sent(client, encoded(NEW[0]))["fpr"] == 0.1


def test_without_a_calibration_there_is_a_score_alone(ask: Ask) -> None:
    known = Features(avg=torch.randn(90, 4, generator=torch.Generator().manual_seed(0)))
    client = ask(LiveJudge(create("knn").fit(known)))
    row = sent(client, npy(known.avg.numpy()[:1]), "application/x-npy")["results"][0]
    assert (row["p_value"], row["ood"], row["verdict"]) == (None, None, None)
    assert "before the detector is calibrated" in client.get("/v1/drift").json()["error"]
    assert client.get("/v1/info").json()["calibration"] is None
    assert client.get("/v1/recent").json()["drift"] is None
    headers = {"content-type": "application/x-npy"}
    refused = client.post("/v1/score?fpr=0.1", content=npy(known.avg.numpy()[:1]), headers=headers)
    assert (refused.status_code, refused.json()["error"][:30]) == (422, "The detector is not calibrated")


def test_info_tells_what_is_served(ask: Ask, judge: LiveJudge) -> None:
    found = ask(judge, batch=7, queue=70).get("/v1/info").json()
    assert found["classes"] == list(Pictures.classes)
    assert found["preprocessing"] == HALF.to_dict()
    assert (found["takes"], found["columns"]) == (["images", "features"], list(judge.columns))
    assert (found["limits"]["batch"], found["limits"]["queue"], found["version"]) == (7, 70, __version__)
    assert found["about"]["method"] == "heat"
    calibration = found["calibration"]
    assert calibration["samples"] == sum(calibration["histogram"]["counts"]) == 300
    assert len(calibration["histogram"]["edges"]) == len(calibration["histogram"]["counts"]) + 1
    assert calibration["thresholds"]["0.05"] == pytest.approx(judge.detector.threshold(0.05))


def test_recent_drift_and_metrics_tell_of_the_stream(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge)
    rows = [sent(client, encoded(p))["results"][0] for p in NEW[:3]]
    recent = client.get("/v1/recent").json()
    assert [(r["score"], r["p_value"], r["ood"]) for r in recent["results"]] == [
        (row["score"], row["p_value"], row["ood"]) for row in rows
    ]
    drift = client.get("/v1/drift").json()
    assert (drift["samples"], drift["calibration_samples"], drift["alarm"]) == (3, 300, False)
    assert recent["drift"] == drift
    text = client.get("/metrics").text
    for line in (
        'heat_ood_requests_total{code="200",route="/v1/score"} 3.0',
        "heat_ood_samples_total 3.0",
        "heat_ood_batch_samples_count 3.0",
        "heat_ood_queue_samples 0.0",
        "heat_ood_drift_alarm 0.0",
    ):
        assert line in text.splitlines()


def test_the_watch_on_drift_starts_anew_when_it_is_told_to(
    ask: Ask, judge: LiveJudge, caplog: pytest.LogCaptureFixture
) -> None:
    client, columns = ask(judge), columns_of(judge)
    one = {name: np.repeat(column[:1], 50, 0).tolist() for name, column in columns.items()}
    body = json.dumps({"features": one}).encode()

    def alarmed() -> bool:
        sent(client, body, "application/json")
        found: bool = client.get("/v1/drift").json()["alarm"]
        return found

    for said in (1, 2):  # the same sample over and over is a drift, each time that the watch begins
        assert any(alarmed() for _ in range(20))
        assert [r.message.startswith("drift: the stream stopped") for r in caplog.records].count(True) == said
        foreign = client.delete("/v1/drift", headers={"sec-fetch-site": "cross-site"})
        assert (foreign.status_code, client.get("/v1/drift").json()["alarm"]) == (403, True)
        anew = client.delete("/v1/drift").json()
        assert (anew["samples"], anew["alarm"], anew["evidence"]) == (0, False, 1.0)
        assert "the watch starts anew" in caplog.records[-1].message
        assert anew == client.get("/v1/drift").json()


def test_a_wrong_method_is_told_all_right_ones(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge)
    for path, allowed in (("/v1/drift", "DELETE, GET"), ("/v1/score", "POST"), ("/samples/0", "GET")):
        found = client.put(path)
        assert (found.status_code, found.headers["allow"]) == (405, allowed)


def test_recent_forgets_and_drift_may_be_off(ask: Ask, judge: LiveJudge) -> None:
    client, columns = ask(judge, drift=False), columns_of(judge)
    body = json.dumps({"features": {name: np.repeat(c, 10, 0).tolist() for name, c in columns.items()}}).encode()
    for _ in range(4):
        sent(client, body, "application/json")
    assert len(client.get("/v1/recent").json()["results"]) == 200
    assert "switched off" in client.get("/v1/drift").json()["error"]
    assert client.delete("/v1/drift").status_code == 404


def test_images_to_try(ask: Ask, judge: LiveJudge, tmp_path: Path) -> None:
    for i, p in enumerate(NEW[:2]):
        (tmp_path / f"{i}.png").write_bytes(encoded(p))
    (tmp_path / "notes.txt").write_text("no image")
    client = ask(judge, samples=tmp_path)
    listed = client.get("/samples").json()["samples"]
    assert [one["name"] for one in listed] == ["0.png", "1.png"]
    image = client.get(listed[1]["url"])
    assert (image.content, image.headers["content-type"]) == (encoded(NEW[1]), "image/png")
    assert client.get("/samples/2").status_code == 404
    assert ask(judge).get("/samples").json() == {"samples": []}


def test_images_of_any_size_where_the_model_takes_them(ask: Ask) -> None:
    guard = make_guard(create("gmm"))
    guard.detector.seen_ = replace(guard.detector.seen_, preprocessing={**HALF.to_dict(), "size": None})
    client = ask(LiveJudge(guard))
    pictures = [Pictures(1, i).pixels[0][: 10 + i] for i in range(3)]
    files = [("image", (f"{i}.png", encoded(p))) for i, p in enumerate([*pictures, pictures[0]])]
    found = client.post("/v1/score", files=files).json()["results"]
    alone = [sent(client, encoded(p))["results"][0]["p_value"] for p in pictures]
    assert [row["p_value"] for row in found] == [*alone, alone[0]]
    assert [row["name"] for row in found] == ["0.png", "1.png", "2.png", "3.png"]
