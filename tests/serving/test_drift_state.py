"""The state of a watch: it goes on as if there had been no break, and reads no file that it cannot have written."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heat_ood import FormatError
from heat_ood.serving import Drift


def normal(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=size)


def told(drift: Drift) -> dict[str, Any]:
    return {key: value for key, value in drift.report().items() if key not in ("started", "alarm_since")}


@pytest.mark.parametrize("size", [1, 50, 1020, 2000])
@pytest.mark.parametrize("cut", [0, 1, 300, 1400])
def test_a_restart_changes_no_bit(tmp_path: Path, size: int, cut: int) -> None:
    calibration, stream = normal(size), np.concatenate([normal(1200, 1), normal(300, 2) + 2])
    whole = Drift(calibration, seed=5)
    whole.update(stream)
    part = Drift(calibration, seed=5)
    part.update(stream[:cut])
    part.save(tmp_path / "drift.json")
    again = Drift.load(tmp_path / "drift.json", calibration[::-1])
    assert again.report() == part.report()
    again.update(stream[cut:])
    assert told(again) == told(whole)
    assert whole.report()["alarm"]


@pytest.mark.parametrize("batch", [1, 7, 400])
def test_batches_change_no_bit(batch: int) -> None:
    stream = np.concatenate([normal(1100, 1), normal(200, 2) + 2])
    whole, parts = Drift(normal(50)), Drift(normal(50))
    whole.update(stream)
    for first in range(0, len(stream), batch):
        parts.update(stream[first : first + batch])
    assert told(parts) == told(whole)


def test_its_size_does_not_grow(tmp_path: Path) -> None:
    drift, path = Drift(normal(50)), tmp_path / "drift.json"
    drift.update(normal(2000, 1))
    drift.save(path)
    early = path.stat().st_size
    drift.update(normal(20_000, 2))
    drift.save(path)
    assert path.stat().st_size < early + 3000 < 40_000
    assert [file.name for file in tmp_path.iterdir()] == ["drift.json"]


def test_another_calibration_is_refused(tmp_path: Path) -> None:
    Drift(normal(50)).save(tmp_path / "drift.json")
    with pytest.raises(FormatError, match=r"other calibration scores than these 50.*Delete the file"):
        Drift.load(tmp_path / "drift.json", normal(50, 1))
    with pytest.raises(FormatError, match="other calibration scores"):
        Drift.load(tmp_path / "drift.json", normal(51))
    with pytest.raises(FileNotFoundError):
        Drift.load(tmp_path / "none.json", normal(50))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", -1),
        ("samples", 10**30),
        ("samples", 299),
        ("seed", -1),
        ("seed", 2**64),
        ("kept", []),
        ("kept", ["inf"] * 300),
        ("places", []),
        ("places", [0] * 351),
        ("places", [-5] + [1] * 349 + [7]),
        ("places", [10**30] * 351),
        ("places", [1.5] * 351),
        ("shares", [1.0]),
        ("shares", ["nan"] * 14),
        ("shares", [1.0] * 14),
        ("shares", [-1.0, 2.0] + [0.0] * 12),
        ("log_total", "inf"),
        ("log_total", 1e300),
        ("rise", ["nan"] * 14),
        ("start", [0] * 14),
        ("start", [10**30] * 14),
        ("p_values", [0.5]),
        ("p_values", [2.0] * 50),
        ("evidence", "inf"),
        ("evidence", 1e9),
        ("largest", "nan"),
        ("largest", -1.0),
        ("likely_start", 301),
        ("likely_start", "7"),
        ("alarm_after", 3),
        ("alarm_since", "nan"),
        ("started", "nan"),
        ("calibration", 7),
        ("more", 1),
        ("version", 2),
        ("version", "1"),
        ("format", "other"),
    ],
)
def test_a_state_that_no_watch_wrote_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    drift, path = Drift(normal(50)), tmp_path / "drift.json"
    drift.update(normal(300, 1))
    drift.save(path)
    content = json.loads(path.read_text())
    Drift.load(path, normal(50))
    path.write_text(json.dumps({**content, key: value}))
    with pytest.raises(FormatError, match=r"drift\.json"):
        Drift.load(path, normal(50))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"null", b"[" * 100_000, b'{"format": NaN}'])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "drift.json").write_bytes(content)
    with pytest.raises(FormatError, match="Delete the file"):
        Drift.load(tmp_path / "drift.json", normal(50))


def test_it_is_read_and_saved_while_it_is_updated(tmp_path: Path) -> None:
    drift, stop = Drift(normal(50)), threading.Event()
    found: list[int] = []

    def look() -> None:
        while not stop.is_set():
            drift.save(tmp_path / "drift.json")
            found.append(Drift.load(tmp_path / "drift.json", normal(50)).report()["samples"])

    reader = threading.Thread(target=look)
    reader.start()
    for first in range(0, 3000, 10):
        drift.update(normal(3000, 1)[first : first + 10])
    stop.set()
    reader.join()
    assert found == sorted(found)
    assert all(samples % 10 == 0 for samples in found), "a state is never that of half a batch"
