"""Lists, databases and suites of others: clear errors, no program started, no size believed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heat_ood.benchmarks._jobs import stratified
from heat_ood.benchmarks._readers import SetSpec, open_set
from heat_ood.benchmarks._suites import Contrast
from heat_ood.errors import InputError
from heat_ood.features import Features
from heat_ood.images import UnreadableImageError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("label", ["9" * 5000, "99999999999999999999", "100000000", "1" + "0" * 7])
def test_a_label_of_a_list_that_is_no_class(tmp_path: Path, label: str) -> None:
    (tmp_path / "list.txt").write_text(f"a.png 0\nb.png {label}\n")
    with pytest.raises(InputError, match=r"Line 2 of .*list\.txt"):
        open_set(SetSpec("x", "imglist", "list.txt"), tmp_path)


def test_a_list_that_names_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    (tmp_path / "list.txt").write_text("a.png 0\nb.png 1\n")
    images = open_set(SetSpec("x", "imglist", "list.txt"), tmp_path)
    with pytest.raises(UnreadableImageError, match=r"b\.png cannot be read \(It is a folder, a pipe or a device"):
        images[1]


def test_a_sparse_list_and_one_with_a_null_are_refused(tmp_path: Path) -> None:
    with open(tmp_path / "list.txt", "wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InputError, match="is no image list"):
        open_set(SetSpec("x", "imglist", "list.txt"), tmp_path)
    (tmp_path / "list.txt").write_bytes(b"a\0.png 0\n")
    with pytest.raises(InputError, match="leaves the folder"):
        open_set(SetSpec("x", "imglist", "list.txt"), tmp_path)


def test_a_database_opens_images_by_the_decoders_that_are_meant(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "set")) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a", EPS)
    with pytest.raises(UnreadableImageError, match=r"The entry a of .* cannot be read as an image"):
        open_set(SetSpec("x", "lsun", "set"), tmp_path)[0]


@pytest.mark.parametrize("samples", [0, 10**12])
def test_a_suite_that_asks_for_too_much_contrast(samples: int) -> None:
    with pytest.raises(InputError, match="at most 5,000,000"):
        Contrast(samples=samples)


def test_shares_of_classes_take_no_memory_for_their_numbers() -> None:
    labels = np.array([0, 30_000] * 50)
    found = stratified(Features(avg=np.zeros((100, 1)), labels=labels), 0.1, 0)
    assert sorted(labels[found]) == [0] * 5 + [30_000] * 5
    assert len(stratified(Features(avg=np.zeros((100, 1)), labels=labels - 1), 0.1, 0)) == 10
