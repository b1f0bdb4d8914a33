"""What cannot be judged is refused in a sentence that says what is wrong, and nothing of it is kept."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from heat_ood.guarding import LiveJudge
from heat_ood.serving import Settings, create_app
from serving_data import Pictures, encoded

Ask = Callable[..., TestClient]
PNG = encoded(Pictures(1, 7).pixels[0])
WIDTHS = {"logits": 3, "avg": 8, "std": 8}
FEATURES = {name: np.ones((2, width), np.float32) for name, width in WIDTHS.items()}


def npy(values: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, **options)
    return stream.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A small PNG whose header promises a large one."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG[:8] + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + PNG[33:]


def features(**changes: Any) -> bytes:
    columns = {name: values.tolist() for name, values in FEATURES.items()}
    return json.dumps({"features": {**columns, **changes}}).encode()


def header(text: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def scans() -> bytes:
    """A progressive JPEG that is drawn over and over."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG", progressive=True)
    whole = stream.getvalue()
    start = whole.rindex(b"\xff\xda")
    return whole[:start] + whole[start:-2] * 200 + whole[-2:]


IMAGE, JSON, NPY = "image/png", "application/json", "application/x-npy"
MULTIPART = "multipart/form-data; boundary=x"
FILE = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n'
CASES: dict[str, tuple[str, bytes, int, str]] = {
    "nothing": (IMAGE, b"", 400, "The body is empty"),
    "no image": (IMAGE, b"no image at all", 422, "cannot identify it as an image"),
    "a truncated image": (IMAGE, PNG[: len(PNG) // 2], 422, "The image cannot be read"),
    "a bomb": (IMAGE, bomb(60_000, 60_000), 422, "pixels"),
    "more pixels than may be": (IMAGE, bomb(7000, 7200), 422, "more than 50,000,000 are not decoded"),
    "no pixels": (IMAGE, bomb(0, 5), 422, "The image cannot be read"),
    "a JPEG of many scans": ("image/jpeg", scans(), 422, "more than 100 passes"),
    "numbers as text": (IMAGE, b"P3 2 2 255 " + b"1 " * 12, 422, "PPM"),
    "a BMP with run lengths": (IMAGE, b"BM" + bytes(28) + b"\x01" + bytes(60), 422, "run lengths"),
    "PostScript": (IMAGE, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "cannot identify"),
    "another content type": ("text/plain", PNG, 415, "The content type is 'text/plain'"),
    "no content type": ("", PNG, 415, "The content type is missing"),
    "one array for several columns": (NPY, npy(FEATURES["avg"]), 415, "Several columns are judged: logits, avg, std"),
    "no boundary": ("multipart/form-data", FILE, 400, "names no boundary"),
    "another boundary": (MULTIPART.replace("=x", "=y"), FILE + PNG + b"\r\n--x--\r\n", 400, "not as its boundary says"),
    "a multipart that ends early": (MULTIPART, FILE + PNG, 400, "it ends in the middle"),
    "a multipart without parts": (MULTIPART, b"--x--\r\n", 400, "The multipart body cannot be read"),
    "headers without end": (MULTIPART, b"--x\r\nA: " + b"a" * 100_000, 400, "The multipart body cannot be read"),
    "a field that is no file": (
        MULTIPART,
        b'--x\r\nContent-Disposition: form-data; name="fpr"\r\n\r\n0.1\r\n--x--\r\n',
        422,
        "The part 'fpr' is no file",
    ),
    "a boundary that is too long": ("multipart/form-data; boundary=" + "x" * 300, FILE, 400, "boundary"),
    "no JSON": (JSON, b'{"features": ', 400, "no JSON that can be read at character"),
    "no UTF-8": (JSON, b'{"features": "\xff"}', 400, "no JSON that can be read"),
    "deep JSON": (JSON, b'{"features": ' + b"[" * 200_000, 400, "no JSON that can be read"),
    "a long number": (JSON, b'{"features": {"avg": [[' + b"9" * 5000 + b"]]}}", 400, "no JSON that can be read"),
    "NaN in JSON": (JSON, features(avg=[[float("nan")] * 8] * 2), 400, "NaN is no number of JSON"),
    "infinity by overflow": (JSON, features().replace(b"1.0", b"1e999", 1), 422, "not finite, the first is sample 0"),
    "beyond float32": (JSON, features(avg=[[1] * 8, [1e300] * 8]), 422, "the first is sample 1"),
    "beyond all floats": (JSON, features(avg=[[10**400] * 8] * 2), 422, "too large"),
    "a list": (JSON, b"[]", 422, 'no "features" alone'),
    "something beside": (JSON, b'{"features": {}, "fpr": 0.1}', 422, 'no "features" alone'),
    "no columns": (JSON, b'{"features": {}}', 422, "The column 'logits' is missing"),
    "a strange column": (JSON, features(more=[[1.0]]), 422, "There is no column 'more'"),
    "a scalar": (JSON, features(avg=3), 422, "avg is no list of rows"),
    "strings": (JSON, features(avg=[["1"] * 8] * 2), 422, "avg holds something else than numbers"),
    "true": (JSON, features(avg=[[True] * 8] * 2), 422, "avg holds something else than numbers"),
    "ragged rows": (JSON, features(avg=[[1.0] * 8, [1.0]]), 422, "The rows of avg have different lengths"),
    "no rows": (JSON, features(avg=[]), 422, "avg is empty"),
    "rows of nothing": (JSON, features(avg=[[], []]), 422, "avg is empty"),
    "another number of rows": (JSON, features(avg=[[1.0] * 8]), 422, "different numbers of samples"),
    "another width": (JSON, features(avg=[[1.0] * 5] * 2), 422, "avg"),
    "too many rows": (JSON, features(avg=[[1.0] * 8] * 65), 413, "65 samples, and 64 are judged at a time"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_body_is_refused_with_its_reason(ask: Ask, judge: LiveJudge, name: str) -> None:
    kind, body, status, reason = CASES[name]
    client = ask(judge)
    found = client.post("/v1/score", content=body, headers={"content-type": kind} if kind else {})
    assert (found.status_code, list(found.json())) == (status, ["error"]), found.text
    assert reason in found.json()["error"]
    assert "Traceback" not in found.text
    assert client.get("/v1/recent").json()["results"] == []
    assert "heat_ood_queue_samples 0.0" in client.get("/metrics").text
    assert "heat_ood_held_bytes 0.0" in client.get("/metrics").text


ARRAYS: dict[str, tuple[bytes, int, str]] = {
    "no array": (b"PK\x03\x04", 400, "avg is no .npy file"),
    "objects": (npy(np.array([[{}]], dtype=object), allow_pickle=True), 422, "avg has the dtype '|O'"),
    "integers": (npy(np.ones((2, 8), np.int64)), 422, "avg has the dtype '<i8'"),
    "complex numbers": (npy(np.ones((2, 8), complex)), 422, "avg has the dtype '<c16'"),
    "a record": (npy(np.zeros(2, [("a", "f4")])), 422, "avg is no plain array"),
    "NaN": (npy(np.full((2, 8), np.nan, np.float32)), 422, "not finite"),
    "a cube": (npy(np.ones((2, 2, 2))), 422, "avg has 3 dimensions"),
    "terabytes": (
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 8), }\n"),
        400,
        "promises 35,184,372,088,832 bytes and has 0",
    ),
    "less than promised": (npy(FEATURES["avg"])[:-1], 400, "bytes and has"),
    "more than promised": (npy(FEATURES["avg"]) + b"\0", 400, "bytes and has"),
    "a header without end": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", 400, "The header of avg is not whole"),
    "a header that is code": (header(b"__import__('os').abort()\n"), 422, "avg is no plain array"),
    "a deep header": (header(b"{'descr': " + b"(" * 9000 + b"\n"), 422, "avg is no plain array"),
    "none at all": (npy(np.ones((0, 8), np.float32)), 422, "avg is empty"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_bad_array_is_refused_with_its_reason(ask: Ask, judge: LiveJudge, name: str) -> None:
    body, status, reason = ARRAYS[name]
    files = {column: (f"{column}.npy", npy(values)) for column, values in FEATURES.items()} | {"avg": ("avg.npy", body)}
    found = ask(judge).post("/v1/score", files=files)
    assert (found.status_code, reason in found.json()["error"]) == (status, True), found.text


def test_files_that_do_not_go_together(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge, batch=3)
    array = ("a.npy", npy(FEATURES["avg"]))
    for files, status, reason in (
        ([("a", ("a.png", PNG)), ("avg", array)], 422, "images and .npy files"),
        ([("avg", array), ("avg", array)], 422, "Two files are of one column"),
        ([("a", ("a.png", PNG))] * 4, 413, "more than 3 files"),
        ([("a", ("a.png", PNG)), ("b", ("b.png", PNG[:50]))], 422, "The image 'b.png' cannot be read"),
    ):
        found = client.post("/v1/score", files=files)
        assert (found.status_code, reason in found.json()["error"]) == (status, True), found.text


def test_bodies_are_counted_as_they_come(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge, body_bytes=1000)
    found = client.post("/v1/score", content=b"x" * 1001, headers={"content-type": IMAGE})
    assert (found.status_code, found.json()["error"][:34]) == (413, "The body has more than 1,000 bytes")
    streamed = client.post("/v1/score", content=(b"x" * 100 for _ in range(20)), headers={"content-type": IMAGE})
    assert streamed.status_code == 413


@pytest.mark.parametrize("fpr", ["0", "1", "-3", "nan", "inf", "many", "", "0.0001"])
def test_a_rate_that_no_verdict_can_hold(ask: Ask, judge: LiveJudge, fpr: str) -> None:
    found = ask(judge).post(f"/v1/score?fpr={fpr}", content=PNG, headers={"content-type": IMAGE})
    assert found.status_code == 422
    assert "fpr" in found.json()["error"]


def test_other_paths_and_methods_are_refused_in_json(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge)
    for method, path, status in (("GET", "/v2", 404), ("GET", "/v1/score", 405), ("PUT", "/", 405)):
        found = client.request(method, path)
        assert (found.status_code, list(found.json())) == (status, ["error"])
    for path in ("/page/../_app.py", "/page/%2e%2e%2f_app.py", "/page/_app.py", "/docs", "/redoc", "/samples/x"):
        assert client.get(path).status_code in (404, 422), path
    assert 'route="other"' in client.get("/metrics").text


def test_another_sites_page_cannot_ask(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge)
    headers = {"content-type": IMAGE, "sec-fetch-site": "cross-site"}
    assert client.post("/v1/score", content=PNG, headers=headers).status_code == 403
    answered = client.post("/v1/score", content=PNG, headers={**headers, "sec-fetch-site": "same-origin"})
    assert answered.status_code == 200
    assert "access-control-allow-origin" not in answered.headers


def test_headers_keep_a_browser_safe(ask: Ask, judge: LiveJudge) -> None:
    client = ask(judge)
    for path in ("/", "/v1/info", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert "server" not in headers


def test_a_token_is_asked_for(ask: Ask, judge: LiveJudge) -> None:
    token = "a-token-of-some-length"
    client = ask(judge, token=token)
    for path in ("/", "/healthz", "/readyz", "/openapi.json"):
        assert client.get(path).status_code in (200, 503), path
    wrong = ({}, {"authorization": token}, {"authorization": "Bearer "}, {"authorization": f"Bearer {token}x"})
    for path in ("/v1/info", "/v1/drift", "/v1/recent", "/metrics", "/samples", "/samples/0", "/v1/score", "/none"):
        for headers in (*wrong, {"authorization": f"Basic {token}"}):
            found = client.get(path, headers=headers)
            assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer"), path
    right = {"authorization": f"bearer {token}"}
    assert client.get("/v1/info", headers=right).status_code == 200
    found = client.post("/v1/score", content=PNG, headers={**right, "content-type": IMAGE})
    assert found.status_code == 200
    assert client.get("/openapi.json").json()["paths"]["/v1/score"]["post"]["security"] == [{"token": []}]
    assert token not in repr(Settings(token=token))


def test_nothing_is_written_for_an_upload(
    ask: Ask, judge: LiveJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), dtype=np.uint8)
    opened: list[str] = []
    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda *a, **k: opened.append("spooled"))
    assert ask(judge).post("/v1/score", files={"a": ("a.png", encoded(noise))}).status_code == 200
    assert (list(tmp_path.iterdir()), opened) == ([], [])


def test_settings_that_cannot_hold() -> None:
    for wrong in ({"batch": 0}, {"queue": 3}, {"held_bytes": 5}, {"wait": 9.0}, {"fpr": 2.0}, {"token": "a\n"}):
        with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
            Settings(**wrong)


def test_a_rate_that_the_calibration_cannot_hold_is_refused_at_the_start(judge: LiveJudge) -> None:
    with pytest.raises(ValueError, match="needs at least 999 calibration samples; there are 300"):
        create_app(judge, Settings(fpr=0.001))
