"""Each reader on small files in the original layout: pixels, labels, order, and what cannot be read."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torch.utils.data import DataLoader

from cifar_data import write_cifar, write_cifar10, write_cifar100
from heat_ood.benchmarks import digits
from heat_ood.benchmarks._readers import READERS, MissingData, SetSpec, open_set
from heat_ood.errors import InputError
from heat_ood.images import ImageSet, Preprocessing, UnreadableImageError

RAW = Preprocessing(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def pixels_of(images: ImageSet) -> np.ndarray[Any, Any]:
    return np.stack([np.asarray(images.read(row)) for row in images.rows])


def labels_of(images: ImageSet) -> list[int]:
    assert images.targets is not None
    return list(images.targets.tolist())


def png(seed: int, size: tuple[int, int] = (9, 7)) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def cifar(reader: str, split: str) -> SetSpec:
    return SetSpec("c", reader, "bin", split=split)


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10(tmp_path: Path, split: str) -> None:
    pixels, labels = write_cifar10(tmp_path / "bin")[split]
    images = open_set(cifar("cifar10-bin", split), tmp_path)
    assert np.array_equal(pixels_of(images), pixels)
    assert labels_of(images) == labels.tolist()
    assert images.classes is None
    assert images.uniform
    assert images.files is None


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar100_has_its_fine_labels(tmp_path: Path, split: str) -> None:
    pixels, labels = write_cifar100(tmp_path / "bin")[split]
    images = open_set(cifar("cifar100-bin", split), tmp_path)
    assert np.array_equal(pixels_of(images), pixels)
    assert labels_of(images) == labels.tolist()


def test_a_record_by_hand(tmp_path: Path) -> None:
    record = bytes([7]) + bytes([10] * 1024) + bytes([20] * 1023 + [21]) + bytes([30] * 1024)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "test_batch.bin").write_bytes(record)
    images = open_set(cifar("cifar10-bin", "test"), tmp_path)
    images.preprocessing = RAW
    x, label = images[0]
    assert label == 7
    assert (x[:, 0, 0] * 255).tolist() == pytest.approx([10, 20, 30])
    assert (x[:, 31, 31] * 255).tolist() == pytest.approx([10, 21, 30])


def test_the_names_of_the_classes_are_read_where_they_are(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "bin")
    names = [f"name{i}" for i in range(10)]
    (tmp_path / "bin" / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    assert open_set(cifar("cifar10-bin", "test"), tmp_path).classes == tuple(names)
    assert open_set(cifar("cifar10-bin", "test"), tmp_path, labels=False).classes is None


def test_cifar_is_mapped_and_not_sent_to_other_processes(tmp_path: Path) -> None:
    pixels, _ = write_cifar10(tmp_path / "bin", a_batch=100)["train"]
    images = open_set(cifar("cifar10-bin", "train"), tmp_path)
    assert all(isinstance(part.base, np.memmap) for part in images.mapped)  # type: ignore[attr-defined]
    sent = pickle.dumps(images)
    assert len(sent) < 20_000
    assert np.array_equal(np.asarray(pickle.loads(sent).read(499)), pixels[499])


@pytest.mark.parametrize("limit", [1, 7, 20, 99])
def test_a_limit_spreads_over_the_files(tmp_path: Path, limit: int) -> None:
    pixels, labels = write_cifar10(tmp_path / "bin")["train"]
    images = open_set(cifar("cifar10-bin", "train"), tmp_path, limit=limit)
    rows = [i * 20 // min(limit, 20) for i in range(min(limit, 20))]
    assert np.array_equal(pixels_of(images), pixels[rows])
    assert labels_of(images) == labels[rows].tolist()


def test_the_smaller_limit_counts(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "bin")
    spec = SetSpec("c", "cifar10-bin", "bin", split="train", limit=5)
    assert len(open_set(spec, tmp_path)) == 5
    assert len(open_set(spec, tmp_path, limit=3)) == 3
    assert len(open_set(spec, tmp_path, limit=9)) == 5


def test_identity_tells_files_and_limits_apart(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        write_cifar10(tmp_path / name, seed=seed)
    specs = [SetSpec("x", "cifar10-bin", name, split="test") for name in "abc"]
    a, b, c = (open_set(spec, tmp_path).identity for spec in specs)
    assert a != b
    assert a == c
    assert a != open_set(specs[0], tmp_path, limit=2).identity


@pytest.mark.parametrize("place", ["in the folder", "beside it"])
@pytest.mark.parametrize(
    ("reader", "folder", "beside", "names"),
    [
        ("cifar10-bin", "cifar-10-batches-bin", "cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)]),
        ("cifar100-bin", "cifar-100-binary", "cifar-100-python", ["train"]),
    ],
)
def test_the_pickled_version_is_refused_and_not_loaded(
    tmp_path: Path, place: str, reader: str, folder: str, beside: str, names: list[str]
) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    where = tmp_path / (folder if place == "in the folder" else beside)
    where.mkdir()
    for name in names:
        (where / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(
        MissingData, match=r"pickle can run any code.*Get it: the binary version, https://.*binary"
    ) as e:
        open_set(SetSpec("c", reader, folder, split="train"), tmp_path)
    assert e.value.put.parent == tmp_path / folder
    assert not (tmp_path / "sprung").exists()


def test_one_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "bin")
    (tmp_path / "bin" / "data_batch_3.bin").unlink()
    with pytest.raises(MissingData, match=r"there is no .*data_batch_3\.bin"):
        open_set(cifar("cifar10-bin", "train"), tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "labels"])
def test_a_damaged_cifar_file(tmp_path: Path, damage: str) -> None:
    write_cifar10(tmp_path / "bin")
    file = tmp_path / "bin" / "test_batch.bin"
    if damage == "labels":
        write_cifar(file, np.zeros((2, 32, 32, 3), np.uint8), np.array([3, 10]))
    else:
        file.write_bytes(file.read_bytes()[: 5000 if damage == "cut" else 0])
    cause = "a label is 10" if damage == "labels" else r"test_batch\.bin has (5,000|0) bytes"
    with pytest.raises(InputError, match=f"{cause}.*Get"):
        open_set(cifar("cifar10-bin", "test"), tmp_path)


def write_svhn(folder: Path, n: int = 5, **changes: Any) -> np.ndarray[Any, Any]:
    folder.mkdir(exist_ok=True)
    x = np.random.default_rng(0).integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
    variables = {"X": x, "y": np.array([1, 9, 10, 2, 10][:n], dtype=np.uint8)[:, None]} | changes
    savemat(folder / "test_32x32.mat", {k: v for k, v in variables.items() if v is not None}, do_compression=True)
    return x


SVHN = SetSpec("svhn", "svhn-mat", "svhn", split="test")


def test_svhn(tmp_path: Path) -> None:
    x = write_svhn(tmp_path / "svhn")
    images = open_set(SVHN, tmp_path)
    assert np.array_equal(pixels_of(images), x.transpose(3, 0, 1, 2))
    assert labels_of(images) == [1, 9, 0, 2, 0]
    assert images.classes == tuple("0123456789")
    assert len(open_set(SVHN, tmp_path, labels=False, limit=2)) == 2
    assert open_set(SVHN, tmp_path, labels=False).targets is None
    first = images.identity
    write_svhn(tmp_path / "svhn", X=x[..., ::-1].copy())
    assert open_set(SVHN, tmp_path).identity != first


OBJECTS = np.empty((1, 2), dtype=object)
OBJECTS[0, 0], OBJECTS[0, 1] = np.arange(3), "text"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": OBJECTS}, "X is cell, not numbers"),
        ({"X": {"a": 1}}, "X is struct, not numbers"),
        ({"y": None}, "y is not in it"),
        ({"X": np.zeros((32, 32, 3, 5))}, "X is float64"),
        ({"X": np.zeros((5, 32, 32, 3), np.uint8)}, r"shape \(5, 32, 32, 3\)"),
        ({"y": np.array([[1], [2]])}, "numbers for 5 images"),
        ({"y": np.array([0, 1, 2, 3, 4])[:, None]}, "not all are 1 to 10"),
        ({"y": np.array([np.nan, 1, 2, 3, 4])[:, None]}, "not all are 1 to 10"),
    ],
)
def test_an_odd_svhn_file(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_svhn(tmp_path / "svhn", **changes)
    with pytest.raises(InputError, match=f"test_32x32.mat.*{message}.*Get it again: http://.*test_32x32"):
        open_set(SVHN, tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"cut", b"hdf"])
def test_a_damaged_svhn_file(tmp_path: Path, content: bytes) -> None:
    write_svhn(tmp_path / "svhn")
    file = tmp_path / "svhn" / "test_32x32.mat"
    whole = file.read_bytes()
    hdf = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF" * 9
    file.write_bytes({b"cut": whole[: len(whole) // 2], b"hdf": hdf}.get(content, content))
    with pytest.raises(InputError, match=r"test_32x32\.mat is not SVHN"):
        open_set(SVHN, tmp_path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for i, name in enumerate(("a/1.png", "b/two words.png", "b/3.png")):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(png(i))
    return tmp_path


def listed(root: Path, text: str) -> SetSpec:
    (root / "lists").mkdir(exist_ok=True)
    (root / "lists" / "x.txt").write_text(text)
    return SetSpec("x", "imglist", "lists/x.txt", images="pictures")


def test_an_image_list_keeps_its_order(pictures: Path) -> None:
    images = open_set(listed(pictures, "b/two words.png 1\na/1.png 0\n\nb/3.png 12\n"), pictures)
    assert images.files == ("b/two words.png", "a/1.png", "b/3.png")
    assert labels_of(images) == [1, 0, 12]
    assert np.array_equal(np.asarray(images.read(1)), np.asarray(Image.open(io.BytesIO(png(0)))))
    few = open_set(listed(pictures, "b/3.png 1\na/1.png 0\n"), pictures, limit=1)
    assert labels_of(few) == [1]


@pytest.mark.parametrize("text", ["a/1.png -1\nb/3.png -1\n", "a/1.png\nb/two words.png\n"])
def test_an_image_list_without_labels(pictures: Path, text: str) -> None:
    assert open_set(listed(pictures, text), pictures).targets is None


def test_labels_of_a_list_can_be_left_out(pictures: Path) -> None:
    assert open_set(listed(pictures, "a/1.png 3\nb/3.png -1\n"), pictures, labels=False).targets is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no images"),
        ("a/1.png 0\nb/3.png -1\n", r"others have none \(image 2\)"),
        ("a/1.png 0\na/2.png cat\n", "Line 2 of .* is 'a/2.png cat'"),
        ("a/1.png 0\na/2.png -7\n", "Line 2"),
        ("/etc/1.png 0\n", "Line 1 .* leaves the folder"),
        ("a/../../1.png 0\n", "Line 1 .* leaves the folder"),
    ],
)
def test_a_list_that_cannot_be_meant(pictures: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_set(listed(pictures, text), pictures)


def test_a_list_that_is_no_text(pictures: Path) -> None:
    spec = listed(pictures, "")
    (pictures / "lists" / "x.txt").write_bytes(png(0))
    with pytest.raises(InputError, match="it is not text"):
        open_set(spec, pictures)


def test_a_list_whose_images_are_not_there(pictures: Path) -> None:
    with pytest.raises(MissingData) as caught:
        open_set(listed(pictures, "c/9.png 0\n"), pictures)
    assert caught.value.put == pictures / "pictures" / "c" / "9.png"


@pytest.mark.parametrize("reader", ["folder", "lsun"])
def test_a_folder(pictures: Path, reader: str) -> None:
    images = open_set(SetSpec("x", reader, "pictures"), pictures)
    assert images.files == ("a/1.png", "b/3.png", "b/two words.png")
    assert labels_of(images) == [0, 1, 1]
    assert open_set(SetSpec("x", reader, "pictures"), pictures, labels=False, limit=2).targets is None


def test_npz(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(3))
    images = open_set(SetSpec("x", "npz", "x.npz"), tmp_path)
    assert np.array_equal(pixels_of(images), pixels)
    assert labels_of(images) == [0, 1, 2]


def write_lmdb(folder: Path, entries: dict[bytes, bytes]) -> None:
    lmdb = importlib.import_module("lmdb")
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        for key, value in entries.items():
            transaction.put(key, value)


LSUN = SetSpec("lsun", "lsun", "lsun")
ENTRIES = {b"b2": png(2), b"a1": png(1), b"c3": png(3)}


@pytest.mark.parametrize("within", [".", "test_lmdb"])
def test_lsun_as_a_database(tmp_path: Path, within: str) -> None:
    write_lmdb(tmp_path / "lsun" / within if within != "." else tmp_path / "lsun", ENTRIES)
    images = open_set(LSUN, tmp_path)
    assert images.files == ("a1", "b2", "c3")
    assert images.targets is None
    for i, seed in enumerate((1, 2, 3)):
        assert np.array_equal(np.asarray(images.read(i)), np.asarray(Image.open(io.BytesIO(png(seed)))))
    assert open_set(LSUN, tmp_path, limit=2).files == ("a1", "b2")
    assert images.identity["files"] == ["a1", "b2", "c3"]


def test_lsun_in_other_processes(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "lsun", ENTRIES)
    images = open_set(LSUN, tmp_path)
    images.preprocessing = RAW
    here = torch.stack([images[i] for i in range(3)])  # type: ignore[misc]
    (there,) = DataLoader(images, batch_size=3, num_workers=1, multiprocessing_context="fork")
    assert torch.equal(here, there)
    again = pickle.loads(pickle.dumps(images))
    assert torch.equal(here, torch.stack([again[i] for i in range(3)]))


def test_an_entry_that_is_no_image(tmp_path: Path) -> None:
    write_lmdb(tmp_path / "lsun", ENTRIES | {b"bad": b"not a picture"})
    images = open_set(LSUN, tmp_path)
    with pytest.raises(UnreadableImageError, match="The entry bad of"):
        images[2]


@pytest.mark.parametrize("damage", ["empty", "no database"])
def test_a_database_that_cannot_be_used(tmp_path: Path, damage: str) -> None:
    write_lmdb(tmp_path / "lsun", {})
    if damage == "no database":
        (tmp_path / "lsun" / "data.mdb").write_bytes(b"hello" * 1000)
    with pytest.raises(InputError, match=r"holds no images|is no lmdb database"):
        open_set(LSUN, tmp_path)


def test_without_lmdb_the_install_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lsun").mkdir()
    (tmp_path / "lsun" / "data.mdb").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(InputError, match=r"pip install 'heat-ood\[lmdb\]'"):
        open_set(LSUN, tmp_path)


def test_the_demos_digits_are_what_the_demo_sees() -> None:
    data = digits.load_data()
    shown = Preprocessing(mean=(0.0,), std=(16 / 17,))
    for path, (x, y) in {"train": data.train, "test": data.test}.items():
        images = open_set(SetSpec("d", "digits", path), ".")
        images.preprocessing = shown
        torch.testing.assert_close(torch.stack([images[i][0] for i in range(len(images))]), x, rtol=0, atol=1e-6)
        assert labels_of(images) == y.tolist()
    for path, x in data.ood.items():
        images = open_set(SetSpec("d", "digits", path), ".")
        images.preprocessing = shown
        found = torch.stack([images[i] for i in range(len(images))])  # type: ignore[misc]
        torch.testing.assert_close(found, x, rtol=0, atol=1e-6)
    with pytest.raises(InputError, match=r"no part 'x'.*It has train, calibration, test"):
        open_set(SetSpec("d", "digits", "x"), ".")


@pytest.mark.parametrize("reader", [r for r in READERS if r != "digits"])
@pytest.mark.parametrize("empty", [False, True])
def test_what_is_missing_says_where_to_get_it_and_where_to_put_it(tmp_path: Path, reader: str, empty: bool) -> None:
    if empty:
        (tmp_path / "place").mkdir()
    split = "test" if reader in ("cifar10-bin", "cifar100-bin", "svhn-mat") else None
    path = "place/list.txt" if reader == "imglist" else "place"
    with pytest.raises(MissingData) as caught:
        open_set(SetSpec("thing", reader, path, split=split, get="https://example.org/thing"), tmp_path)
    error = caught.value
    assert error.name == "thing"
    assert error.get == "https://example.org/thing"
    assert error.put.is_relative_to(tmp_path / "place")
    assert f"Get it: https://example.org/thing. Put it at {error.put}" in str(error)


@pytest.mark.parametrize("reader", ["cifar10-bin", "cifar100-bin", "svhn-mat", "lsun"])
def test_known_sets_know_where_they_come_from(tmp_path: Path, reader: str) -> None:
    with pytest.raises(MissingData) as caught:
        open_set(SetSpec("x", reader, "x", split=None if reader == "lsun" else "train"), tmp_path)
    assert "http" in caught.value.get


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reader": "tar"}, "no reader 'tar'.*There are cifar10-bin"),
        ({"reader": "cifar10-bin"}, "takes split = 'train' or 'test', not None"),
        ({"reader": "svhn-mat", "split": "extra"}, "not 'extra'"),
        ({"reader": "folder", "split": "test"}, "takes no split"),
        ({"reader": "folder", "images": "x"}, "of imglist alone"),
        ({"reader": "folder", "limit": 0}, "at least 1"),
    ],
)
def test_a_description_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SetSpec("x", path="x", **settings)


def test_a_path_of_its_own_is_not_within_the_root(tmp_path: Path) -> None:
    assert SetSpec("x", "folder", str(tmp_path)).at("data") == tmp_path
    assert SetSpec("x", "folder", "~/x").at("data") == Path.home() / "x"
    assert SetSpec("x", "folder", "x").at("~/data") == Path.home() / "data" / "x"
