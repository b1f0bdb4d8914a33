"""Encoded images in an archive: pixels, labels and order, and files that claim what they do not hold."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from heat_ood.benchmarks import SetSpec, open_set
from heat_ood.errors import InputError
from heat_ood.images import Preprocessing, UnreadableImageError, _archives

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
SPEC = SetSpec("x", "encoded-npz", "set.npz")


def encoded(pixels: np.ndarray[Any, Any], kind: str = "WEBP") -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, lossless=True)
    return out.getvalue()


def pictures(count: int = 6) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (count, 8, 10, 3), dtype=np.uint8)


def arrays(files: list[bytes], **changes: Any) -> dict[str, Any]:
    offsets = np.cumsum([0, *map(len, files)], dtype=np.int64)
    usual = {
        "bytes": np.frombuffer(b"".join(files), dtype=np.uint8),
        "offsets": offsets,
        "labels": np.arange(len(files), dtype=np.int16) % 3,
    }
    return {key: value for key, value in (usual | changes).items() if value is not None}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    np.savez(tmp_path / "set.npz", **arrays([encoded(x) for x in pictures()]))
    return tmp_path


def test_pixels_labels_and_order(place: Path) -> None:
    images = open_set(SPEC, place)
    images.preprocessing = Preprocessing(mean=(0.0,) * 3, std=(1.0,) * 3)
    assert images.targets is not None
    assert images.targets.tolist() == [0, 1, 2, 0, 1, 2]
    assert all(np.array_equal(np.asarray(images.read(i)), x) for i, x in enumerate(pictures()))
    (x, labels), *_ = DataLoader(images, batch_size=4, num_workers=1)
    assert np.array_equal((x * 255).round().byte().permute(0, 2, 3, 1).numpy(), pictures()[:4])
    assert labels.tolist() == [0, 1, 2, 0]
    assert open_set(SPEC, place, labels=False).targets is None
    assert open_set(SPEC, place, limit=2).rows == [0, 3]


def test_a_function_says_which_images_and_in_which_order(place: Path) -> None:
    (place / "my_parts.py").write_text(
        "import numpy as np\n"
        "def last(file):\n    return np.flatnonzero(np.load(file)['labels'] == 2)[::-1]\n"
        "def twice(file): return np.array([1, 1])\n"
        "def beyond(file): return np.array([6])\n"
        "def before(file): return np.array([-1])\n"
        "def none(): return np.array([], dtype=int)\n"
        "def words(file): return ['a']\n"
    )

    def part(name: str) -> SetSpec:
        return SetSpec("x", "encoded-npz", "set.npz", rows=f"my_parts:{name}", folder=place)

    images = open_set(part("last"), place)
    assert images.rows == [5, 2]
    assert images.targets is not None
    assert images.targets.tolist() == [2, 2]
    assert images.identity != open_set(SPEC, place, limit=2).identity, "other images of one file"
    for name, message in (
        ("twice", "or one twice; .* has 6, from 0"),
        ("beyond", "from 6 to 6"),
        ("before", "from -1 to -1"),
        ("none", r"returned int64 of shape \(0,\)"),
        ("words", "Return whole numbers"),
        ("lst", "Did you mean last"),
    ):
        with pytest.raises(InputError, match=message):
            open_set(part(name), place)


def test_identity_tells_files_apart(place: Path) -> None:
    first = open_set(SPEC, place).identity
    assert open_set(SPEC, place).identity == first
    np.savez(place / "set.npz", **arrays([encoded(x) for x in pictures()[::-1]]))
    assert open_set(SPEC, place).identity != first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bytes": None}, "no array 'bytes'"),
        ({"offsets": None}, "no array 'offsets'"),
        ({"bytes": np.zeros((2, 2), dtype=np.uint8)}, r"The bytes in .* are uint8 of shape \(2, 2\)"),
        ({"bytes": np.zeros(9)}, "The bytes in .* are float64"),
        ({"bytes": np.array(["a"], dtype=object)}, "claims .* of object"),
        ({"offsets": np.zeros(7)}, "The offsets in .* are float64"),
        ({"offsets": np.zeros(1, dtype=np.int64)}, r"are int64 of shape \(1,\)"),
        ({"offsets": np.zeros(7, dtype=np.int64)}, "do not share out its .* bytes"),
        ({"offsets": np.array([0, 5, 3, 90, 95, 99, 100])}, "do not share out"),
        ({"offsets": np.array([-3, 1, 2, 3, 4, 5, 6])}, "do not share out"),
        ({"offsets": np.array([0, 1, 2, 3, 4, 5, 1 << 40])}, "do not share out"),
        ({"offsets": np.array([5, 4, 3, 2, 1, 0], dtype=np.uint64)}, "do not share out"),
        ({"labels": np.arange(5)}, "Save 6 integers"),
        ({"labels": np.arange(6) - 1}, "no class numbers"),
    ],
)
def test_an_archive_that_claims_what_it_does_not_hold(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays([encoded(x) for x in pictures()], **changes))
    with pytest.raises(InputError, match=message):
        open_set(SPEC, tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"is not an \.npz file with arrays 'bytes' and 'offsets'"):
        open_set(SPEC, tmp_path)


def test_bytes_that_are_blown_up_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_archives, "SMALL", 1 << 20)
    content = arrays([encoded(x) for x in pictures()], bytes=np.zeros(1 << 22, dtype=np.uint8))
    np.savez_compressed(tmp_path / "set.npz", **content)
    with pytest.raises(InputError, match="unpacks to 4,194,304 bytes, more than 200 times"):
        open_set(SPEC, tmp_path)


@pytest.mark.parametrize("content", [EPS, b"nothing", b"cut"])
def test_one_image_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    files = [encoded(x) for x in pictures(2)]
    np.savez(tmp_path / "set.npz", **arrays([files[0], files[1][:40] if content == b"cut" else content]))
    images = open_set(SPEC, tmp_path)
    assert images[0] is not None
    with pytest.raises(UnreadableImageError, match=r"Image 1 of .*set\.npz cannot be read"):
        images[1]


@pytest.mark.parametrize("settings", [{"reader": "npz"}, {"rows": "module"}, {"rows": ":f"}, {"rows": "m:"}])
def test_rows_that_cannot_be_meant(settings: dict[str, str]) -> None:
    with pytest.raises(InputError, match="module:function"):
        SetSpec(**{"name": "x", "reader": "encoded-npz", "path": "set.npz", "rows": "m:f"} | settings)  # type: ignore[arg-type]
