"""Saved detectors that were damaged or tampered with: an error, or nothing changes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from heat_ood import HEAT, Energy, FormatError
from storage_data import outcome, sign, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


def flip(rng: random.Random, content: bytes) -> bytes:
    out = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 4])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def swap(rng: random.Random, content: bytes) -> bytes:
    out = bytearray(content)
    i, j = rng.randrange(len(out)), rng.randrange(len(out))
    out[i], out[j] = out[j], out[i]
    return bytes(out)


def noise(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    size = rng.randrange(1, 64)
    return content[:start] + rng.randbytes(size) + content[start + rng.choice([0, size]) :]


def truncate(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def repeat(rng: random.Random, content: bytes) -> bytes:
    return content + content[rng.randrange(len(content)) :]


def drop(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randrange(1, 50) :]


def zero(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    size = min(rng.randrange(1, 4096), len(content) - start)
    return content[:start] + bytes(size) + content[start + size :]


def test_a_thousand_corruptions_are_errors_or_change_nothing(saved: Path, tmp_path: Path) -> None:
    rng, good = random.Random(0), {f.name: f.read_bytes() for f in saved.iterdir()}
    expected, folder = outcome(Energy.load(saved)), tmp_path / "bad"
    folder.mkdir()
    kinds, refused = [flip, swap, noise, truncate, repeat, drop, zero], 0
    manifest, tensors = sorted(good)
    for trial in range(1000):
        files = dict(good)
        match rng.randrange(10):
            case 0:
                del files[rng.choice(sorted(good))]
            case 1:
                files["copy of " + rng.choice(sorted(good))] = rng.randbytes(20)
            case 2:
                files[manifest], files[tensors] = rng.choice([(good[tensors], good[manifest]), (good[manifest],) * 2])
            case 3 | 4 | 5:
                files[tensors] = rng.choice(kinds)(rng, good[tensors])
            case _:
                files[manifest] = rng.choice(kinds)(rng, good[manifest])
        for name in set(good) | {f.name for f in folder.iterdir()}:
            (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        try:
            energy = Energy.load(folder)
        except FormatError:
            refused += 1
        else:
            assert outcome(energy) == expected, f"trial {trial}: silently different"
    assert 700 < refused < 1000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[]", "is not of the format"),
        (b"3", "is not of the format"),
        (b'{"format": "something else", "version": 1}', "is not of the format"),
        (b'{"format": "heat-ood detector"}', "version is None"),
        (b'{"format": "heat-ood detector", "version": 0}', "version is 0"),
        (b'{"format": "heat-ood detector", "version": 1}', "checksum does not match"),
        (b'{"format": "heat-ood detector", "version": 99}', "version 99; this heat-ood reads up to 2. Upgrade with"),
        (b"[" * 500_000, "not JSON"),
        (
            b'{"format": "heat-ood detector", "version": 1, "x": ' + b"[" * 3000 + b"]" * 3000 + b"}",
            "not JSON|checksum",
        ),
        (b'{"format": "heat-ood detector", "version": 1, "x": ' + b"[" * 900 + b"]" * 900 + b"}", "not JSON|checksum"),
        (b'{"format": "heat-ood detector", "version": 1' + b"0" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_foreign_manifest(content: bytes, text: str, copy: Path) -> None:
    (copy / "detector.json").write_bytes(content)
    with pytest.raises(FormatError, match=text):
        Energy.load(copy)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such folder"):
        HEAT.load(tmp_path / "none")
    with pytest.raises(FormatError, match=r"has no detector\.json"):
        HEAT.load(tmp_path)


def test_a_newer_version_with_a_checksum_that_holds(copy: Path) -> None:
    sign(copy, lambda manifest: manifest.update(version=3))
    with pytest.raises(FormatError, match=r"format version 3.* Upgrade with: pip install"):
        HEAT.load(copy)


@pytest.mark.parametrize("where", ["..", "absolute", "below", "dots", "null", "long", "none", "number", "surrogate"])
def test_a_path_outside_the_folder_is_not_followed(where: str, copy: Path) -> None:
    file, _ = tensors_of(copy)
    target = copy.parent / file.name
    shutil.copy(file, target)
    (copy / "below").mkdir()
    shutil.copy(file, copy / "below" / file.name)
    name: Any = {
        "..": f"../{file.name}",
        "absolute": str(target),
        "below": f"below/{file.name}",
        "dots": "..",
        "null": f"{file.name}\0",
        "long": "a" * 5000,
        "none": None,
        "number": 7,
        "surrogate": "\ud800",
    }[where]
    sign(copy, lambda manifest: manifest["tensors"].update(file=name))
    with pytest.raises(FormatError, match=r"not one that \.save"):
        HEAT.load(copy)


@pytest.mark.parametrize("linked", ["tensors", "manifest"])
def test_links_are_not_followed(linked: str, copy: Path) -> None:
    file = tensors_of(copy)[0] if linked == "tensors" else copy / "detector.json"
    moved = file.rename(copy.parent / f"moved-{file.name}")
    file.symlink_to(moved)
    with pytest.raises(FormatError, match="link"):
        HEAT.load(copy)
