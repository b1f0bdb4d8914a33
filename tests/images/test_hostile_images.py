"""Images that are none: programs, bombs, pipes, loops; each is refused or skipped, soon and in little memory."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from forks import Forks, forks
from heat_ood.errors import InputError, Notice
from heat_ood.images import Preprocessing, UnreadableImageError, open_images
from heat_ood.images._decoding import FORMATS
from heat_ood.images._files import SUFFIXES

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def picture(file: Path, size: tuple[int, int] = (9, 7)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(file)


# Decoders


def test_an_image_that_holds_postscript_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # looked for once in a process
    picture(tmp_path / "images" / "0.jpg")
    (tmp_path / "images" / "1.jpg").write_bytes(EPS)
    images = open_images(tmp_path / "images")
    with pytest.raises(UnreadableImageError, match=r"1\.jpg cannot be read \(cannot identify it as an image of"):
        images[1]
    assert list(open_images(tmp_path / "images", skip_unreadable=True).skipped) == ["1.jpg"]
    assert not (tmp_path / "started").exists()
    with suppress(OSError), Image.open(io.BytesIO(EPS)) as opened:
        opened.load()  # what would have happened
    assert (tmp_path / "started").exists()


def test_the_decoders_are_those_of_the_suffixes() -> None:
    Image.init()
    assert {Image.EXTENSION[suffix] for suffix in SUFFIXES} == set(FORMATS)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_of_image_is_still_read_whatever_its_name(tmp_path: Path, suffix: str) -> None:
    Image.new("L" if suffix == ".pgm" else "RGB", (9, 7), 200).save(tmp_path / f"a{suffix}")
    shutil.copy(tmp_path / f"a{suffix}", tmp_path / "b.jpg")
    for x in open_images(tmp_path):
        assert x.shape == (3, 7, 9)


# Bombs


def png(width: int, height: int, data: bytes = b"") -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return b"GIF89a" + screen + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00;"


def tiff(width: int, height: int) -> bytes:
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
    tags += [(278, 4, height), (279, 4, width * height % 2**32)]
    body = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + body + b"\0\0\0\0"


def scans(count: int) -> bytes:
    """A progressive JPEG that is drawn many times over."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    last = whole.rindex(b"\xff\xda")
    return whole[:-2] + whole[last:-2] * count + b"\xff\xd9"


BOMBS = {
    "png-wide": lambda: png(30_000, 30_000),
    "png-just-above": lambda: png(10_000, 9_000),
    "gif": lambda: gif(65_535, 65_535),
    "tiff": lambda: tiff(60_000, 60_000),
    "tiff-largest": lambda: tiff(2**32 - 1, 2**32 - 1),
    "bmp": lambda: (
        b"BM" + struct.pack("<IHHI", 0, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 2**30, 2**30, 1, 24, *[0] * 6)
    ),
    "ppm": lambda: b"P6 99999 99999 255\n",
    "jpeg-scans": lambda: scans(5000),
    "cut": lambda: png(9_000, 9_000)[:60],
    "empty": lambda: b"",
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("forks"), "heat_ood.images") as made:
        yield made


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, limited: Forks, kind: str) -> None:
    (tmp_path / "bomb.png").write_bytes(BOMBS[kind]())
    code = f"""
import resource, warnings
from pathlib import Path
from heat_ood.images import UnreadableImageError, open_images
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), used + (1 << 28)))
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
warnings.simplefilter("ignore")
try:
    open_images({str(tmp_path)!r})[0]
except UnreadableImageError as error:
    print(error)
"""
    found = limited.run(code)
    assert b"bomb.png cannot be read (" in found.stdout, found.stderr[-500:]
    if kind in ("png-just-above", "jpeg-scans"):
        assert b"are not decoded" in found.stdout or b"more than 100 passes" in found.stdout


def test_an_image_of_many_frames_is_its_first(tmp_path: Path) -> None:
    frames = [Image.new("L", (40, 40), i % 256) for i in range(2000)]
    frames[0].save(tmp_path / "many.gif", save_all=True, append_images=frames[1:])
    images = open_images(tmp_path)
    images.preprocessing = Preprocessing(mean=(0.0,), std=(1.0,))
    assert images[0].abs().max() == 0


def test_proportions_that_make_a_resized_image_huge_are_refused_by_name(tmp_path: Path) -> None:
    Image.new("L", (1, 65_000)).save(tmp_path / "thin.png")
    images = open_images(tmp_path)
    images.preprocessing = Preprocessing(size=(224, 224))
    with pytest.raises(UnreadableImageError, match=r"thin\.png of .* would have 14,560,000 × 224"):
        images[0]


@pytest.mark.parametrize("settings", [{"size": (10**6, 10**6)}, {"size": (224, 224), "crop_pct": 1e-6}])
def test_a_size_that_asks_for_too_much(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="16,384 are the most"):
        Preprocessing(**settings)
    with pytest.raises(InputError, match="out of range"):
        Preprocessing(mean=(10**400,) * 3)


def test_a_deep_picture_that_may_be_of_eight_bits_is_not_made_black(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 200, dtype=np.int32)).save(tmp_path / "vague.tif")
    with pytest.raises(UnreadableImageError, match="whole numbers from 200 to 200"):
        open_images(tmp_path)[0]


def test_modes_that_have_no_grey_are_refused_or_converted(tmp_path: Path) -> None:
    Image.new("LAB", (8, 8)).save(tmp_path / "lab.tif")
    images = open_images(tmp_path)
    for preprocessing in (Preprocessing(), Preprocessing(mean=(0.5,), std=(0.5,))):
        images.preprocessing = preprocessing
        assert torch.isfinite(images[0]).all()


# Folders


def test_what_is_no_file_is_said_once(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "0.png")
    for i in range(3):
        os.mkfifo(tmp_path / "a" / f"pipe{i}.png")
    (tmp_path / "a" / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "back").symlink_to(tmp_path)
    with pytest.warns(Notice) as said:
        images = open_images(tmp_path)
    assert len(images) == 1
    (text,) = (str(one.message) for one in said)
    assert text == f"5 entries of {tmp_path} are skipped: pipes, devices, or links that lead in a circle (a/pipe0.png)."


@pytest.fixture
def ordinary() -> Iterator[Path]:
    """A folder that others than root reach, and a process that is not root's."""
    folder = Path(tempfile.mkdtemp(prefix="heat-ood-test-"))
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65_534, 65_534)
        os.seteuid(65_534)
    yield folder
    if root:
        os.seteuid(0)
    for path in folder.rglob("*"):
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("inner", ["a", "a/deep"])
def test_a_folder_that_may_not_be_read(ordinary: Path, inner: str) -> None:
    picture(ordinary / "b" / "0.png")
    (ordinary / inner).mkdir(parents=True)
    (ordinary / inner).chmod(0)
    with pytest.raises(InputError, match=rf"The folder .*/{inner}/? cannot be read \(Permission denied\)"):
        open_images(ordinary)


def test_an_image_that_may_not_be_read_is_named(ordinary: Path) -> None:
    picture(ordinary / "0.png")
    (ordinary / "0.png").chmod(0)
    with pytest.raises(UnreadableImageError, match=r"0\.png cannot be read \(Permission denied\)"):
        open_images(ordinary)[0]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "loop.npz", "pipe.npz"])
def test_a_single_path_that_is_no_file(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "loop.npz").symlink_to(tmp_path / "loop.npz")
    with pytest.raises(InputError, match="neither a folder nor a file"):
        open_images(tmp_path / path)


# Archives


def header(text: str) -> bytes:
    body = text.encode("latin-1").ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body


HEADERS = {
    "tokens": "{'descr': '|u1', 'fortran_order': False, 'shape': (2, (",
    "deep": "{'descr': '|u1', 'fortran_order': False, 'shape': " + "(" * 5000,
    "large": "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 1000, 1000000, 3), }",
    "negative": "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 2, 2), }",
    "zero": "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 1000000, 1000000), }",
    "floats": "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 2), }",
    "deep pixels": "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2, 2), }",
    "object": "{'descr': '|O', 'fortran_order': False, 'shape': (1, 2, 2), }",
    "type": "{'descr': [('a', '|u1')] * 9, 'fortran_order': False, 'shape': (1, 2, 2), }",
    "empty": "",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_hostile_header_is_a_clear_error(tmp_path: Path, kind: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("images.npy", header(HEADERS[kind]) + bytes(32))
    with pytest.raises(InputError, match=r"x\.npz"):
        open_images(tmp_path / "x.npz")


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    shape = (400, 1000, 1000)
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("images.npy", "w") as member,
    ):
        member.write(header(f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"))
        for _ in range(shape[0]):
            member.write(bytes(10**6))
    assert (tmp_path / "x.npz").stat().st_size < 10**6
    with pytest.raises(InputError, match="unpacks to 400,000,000 bytes, more than 200 times what it is"):
        open_images(tmp_path / "x.npz")


def test_an_archive_beyond_all_memory(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    with open(file, "wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(InputError, match=r"x\.npz is not an \.npz file"):
        open_images(file)


@pytest.mark.parametrize("label", [-1, 2**40, 2**63])
def test_labels_of_an_archive_are_class_numbers(tmp_path: Path, label: int) -> None:
    kind = np.uint64 if label > 2**62 else np.int64
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 4, 4), np.uint8), labels=np.array([0, label, 1], dtype=kind))
    with pytest.raises(InputError, match=rf"1 labels in .* are no class numbers: image 1 has {label}\."):
        open_images(tmp_path / "x.npz")
    assert len(open_images(tmp_path / "x.npz", labels=False)) == 3
