"""No damage to stored features passes for features: every bit is covered, and nothing but plain files is opened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from heat_ood.errors import FormatError, Notice
from heat_ood.features import Features
from heat_ood.features import _mapped as mapped
from heat_ood.features._store import Writer
from store_data import edit, make_earlier, same, some

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(autouse=True)
def hang_limit() -> Iterator[None]:
    """Waiting for a pipe would be forever."""
    signal.alarm(60)
    yield
    signal.alarm(0)


def store(folder: Path, n: int = 1500) -> Features:
    """The middle of its files is not at their ends; avg and std have one shape."""
    g = torch.Generator().manual_seed(0)
    avg, std = torch.rand(n, 4, generator=g), torch.rand(n, 4, generator=g)
    head = (torch.rand(3, 4, generator=g), torch.rand(3, generator=g))
    features = Features(avg, std, labels=torch.arange(n) % 3, head=head, fingerprint="f")
    features.save(folder)
    return features


def outcome(folder: Path, features: Features, verify: bool) -> str:
    try:
        return "same" if same(Features.open(folder, verify), features) else "other"
    except FormatError:
        return "error"


def test_every_bit_is_covered(tmp_path: Path) -> None:
    features, rng, passed = store(tmp_path), np.random.default_rng(0), 0
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        known = range(8 * mapped.HEADER) if file.suffix == ".npy" else range(0, 8 * len(whole), 7)
        bits = {*rng.choice(known, 60).tolist(), *rng.integers(0, 8 * len(whole), 40).tolist()}
        for bit in bits:
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            assert outcome(tmp_path, features, verify=True) == "error", (file.name, bit)
            at_ends = file.suffix != ".npy" or not (
                mapped.HEADER + mapped.END <= bit // 8 < len(whole) - mapped.END  # the limit that the docs state
            )
            passed += not at_ends
            assert not at_ends or outcome(tmp_path, features, verify=False) != "other", (file.name, bit)
        file.write_bytes(whole)
    assert passed
    assert outcome(tmp_path, features, verify=True) == "same"


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(("a", "b"), [("avg.npy", "std.npy"), ("labels.npy", "avg.npy"), ("avg.npy", "head-bias.npy")])
def test_files_that_change_places_are_noticed(tmp_path: Path, a: str, b: str, verify: bool) -> None:
    store(tmp_path)
    first, second = ((tmp_path / name).read_bytes() for name in (a, b))
    (tmp_path / a).write_bytes(second)
    (tmp_path / b).write_bytes(first)
    with pytest.raises(FormatError):
        Features.open(tmp_path, verify=verify)


def test_a_file_of_another_store_is_noticed(tmp_path: Path) -> None:
    some(seed=0).save(tmp_path / "a")
    some(seed=1).save(tmp_path / "b")
    (tmp_path / "a" / "std.npy").write_bytes((tmp_path / "b" / "std.npy").read_bytes())
    with pytest.raises(FormatError, match=r"std\.npy is damaged, or belongs to other features"):
        Features.open(tmp_path / "a")


def shift(data: bytes) -> bytes:
    """A header that is a byte shorter: the numbers begin a byte earlier, and the file is as long as before."""
    return data[:8] + struct.pack("<H", mapped.HEADER - 11) + data[10 : mapped.HEADER - 2] + b"\n" + b"\0" + data[128:]


HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "shifted": shift,
    "token": lambda d: d[:10] + b"{'descr': '<f4', 'shape': (((".ljust(117) + b"\n" + d[128:],
    "deep": lambda d: d[:10] + (b"(" * 117) + b"\n" + d[128:],
    "not text": lambda d: d[:10] + (b"\xff" * 117) + b"\n" + d[128:],
    "null": lambda d: d[:10] + (b"\0" * 118) + d[128:],
    "huge shape": lambda d: (
        d[:10]
        + repr({"descr": "<f4", "fortran_order": False, "shape": (2**60, 4)}).encode().ljust(117)
        + b"\n"
        + d[128:]
    ),
    "other words": lambda d: (
        d[:10] + repr({"descr": "<f4", "fortran_order": 0, "shape": (1500, 4)}).encode().ljust(117) + b"\n" + d[128:]
    ),
    "version 3": lambda d: d[:6] + b"\3" + d[7:],
    "long header": lambda d: d[:6] + b"\2\0" + struct.pack("<I", 2**31) + d[12:],
}


@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_is_compared_and_never_parsed(tmp_path: Path, kind: str, earlier: bool) -> None:
    store(tmp_path)
    if earlier:
        make_earlier(tmp_path)
    whole = (tmp_path / "avg.npy").read_bytes()
    (tmp_path / "avg.npy").write_bytes(HEADERS[kind](whole))
    assert len((tmp_path / "avg.npy").read_bytes()) == len(whole)
    with pytest.raises(FormatError, match="header"):
        Features.open(tmp_path)


def pipe(path: Path) -> None:
    os.mkfifo(path)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": pipe,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "link within": lambda path: path.symlink_to(path.with_name("copy")),
}


@pytest.mark.parametrize("name", ["avg.npy", "head-bias.npy", "manifest.json"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_without_being_opened(tmp_path: Path, name: str, kind: str) -> None:
    store(tmp_path / "s")
    (tmp_path / "s" / name).rename(tmp_path / "s" / "copy")
    KINDS[kind](tmp_path / "s" / name)
    for verify in (True, False):
        with pytest.raises(FormatError, match=rf"{name}.* (link|pipe|folder)"):
            Features.open(tmp_path / "s", verify)


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_refuses_what_is_no_file(tmp_path: Path, kind: str) -> None:
    for name in ("std.npy", "manifest.journal"):
        folder = tmp_path / name
        with Writer(folder) as writer:
            writer.append(some())
        (folder / name).rename(folder / "copy")
        KINDS[kind](folder / name)
        with pytest.raises(FormatError, match=r" (link|pipe|folder)"), Writer(folder) as writer:
            writer.append(some())
        assert (folder / "copy").read_bytes()


@pytest.mark.parametrize("earlier", [True, False])
def test_a_sparse_file_is_an_error_and_takes_no_memory(tmp_path: Path, earlier: bool) -> None:
    Features(avg=torch.rand(2, 4)).save(tmp_path)
    count = 2**38  # four terabytes
    edit(tmp_path, count=count, batches=[[count, 1]])
    if earlier:
        make_earlier(tmp_path)
    column = Writer(tmp_path).manifest.columns[0]
    with (tmp_path / "avg.npy").open("r+b") as file:
        file.write(mapped.header(column, count))
        try:
            file.truncate(mapped.HEADER + count * column.row)
        except OSError:
            pytest.skip("the disk has no such files")
    with pytest.raises(FormatError, match="sparse"):
        Features.open(tmp_path)


def test_a_mapping_that_is_refused_is_a_format_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    store(tmp_path)
    monkeypatch.setattr(mapped, "mapped", refuse)
    with pytest.raises(FormatError, match="cannot be mapped"):
        Features.open(tmp_path)


def test_a_huge_manifest_is_not_read(tmp_path: Path) -> None:
    store(tmp_path)
    os.truncate(tmp_path / "manifest.json", 2**35)
    with pytest.raises(FormatError, match="too many for a manifest"):
        Features.open(tmp_path)


def test_huge_counts_are_errors(tmp_path: Path) -> None:
    store(tmp_path)
    for count in (2**52, 2**40, 1501, 1499, 0):
        edit(tmp_path, count=count, batches=[[count, 1]])
        with pytest.raises(FormatError):
            Features.open(tmp_path)
    edit(tmp_path, count=0, finished=False, batches=[[0, 2**52]])  # nothing, very often
    with Writer(tmp_path) as writer:
        assert not writer.manifest.count


def test_an_edited_manifest_is_refused_unless_its_checksum_is_too(tmp_path: Path) -> None:
    features = store(tmp_path)
    text = (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace('"fingerprint": "f"', '"fingerprint": "g"'))
    with pytest.raises(FormatError, match=r"manifest\.json is damaged \(its checksum does not match\)"):
        Features.open(tmp_path)
    edit(tmp_path)
    assert Features.open(tmp_path).fingerprint == "g"
    (tmp_path / "manifest.json").write_text(text.replace("\n ", "\n  "))
    assert same(Features.open(tmp_path), features)
    with pytest.raises(FormatError, match="not as it was written"):
        Features.open(tmp_path, verify=True)


@pytest.mark.parametrize("without", ["avg.npy", "head-bias.npy"])
def test_a_manifest_of_today_has_all_checksums(tmp_path: Path, without: str) -> None:
    store(tmp_path)
    checksums = json.loads((tmp_path / "manifest.json").read_text())["checksums"]
    checksums.pop(without)
    edit(tmp_path, checksums=checksums)
    with pytest.raises(FormatError, match="checksums are not those of its files"):
        Features.open(tmp_path)


def test_stores_without_checksums_open_and_say_so(tmp_path: Path) -> None:
    features = store(tmp_path)
    make_earlier(tmp_path)
    assert same(Features.open(tmp_path), features)
    with pytest.warns(Notice, match="have no checksums"):
        assert same(Features.open(tmp_path, verify=True), features)
    for folder in sorted(GOLDEN.glob("*/features/*")):
        if folder.name != "interrupted":
            assert len(Features.open(folder))


def test_an_unfinished_store_that_is_damaged_does_not_go_on(tmp_path: Path) -> None:
    """Or the damage would get a checksum of its own."""
    features, rng = some(60), np.random.default_rng(0)
    with Writer(tmp_path / "s") as writer:
        for start in range(0, 60, 20):
            writer.append(features[start : start + 20])
    for name in sorted(file.name for file in (tmp_path / "s").iterdir()):
        for bit in rng.integers(0, 8 * (tmp_path / "s" / name).stat().st_size, 12).tolist():
            folder = shutil.copytree(tmp_path / "s", tmp_path / f"{name}-{bit}")
            changed = bytearray((folder / name).read_bytes())
            changed[bit // 8] ^= 1 << bit % 8
            (folder / name).write_bytes(changed)
            try:
                with Writer(folder) as writer:
                    writer.labels()
            except FormatError:
                continue
            # half a line at the end of the journal is a batch less, and the model will make it again
            assert (name, writer.manifest.count) == ("manifest.journal", 40), bit
