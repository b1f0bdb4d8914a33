"""Image folders and arrays: order, labels, preprocessing, and what cannot be read."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from heat_ood.errors import Argument, InputError
from heat_ood.images import Preprocessing, UnreadableImageError, open_images


def picture(file: Path, value: int = 0, size: tuple[int, int] = (9, 7)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(file)


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for name, count in {"cat": 3, "ant": 2}.items():
        for i in range(count):
            picture(tmp_path / "data" / name / f"{i}.png", value=10 * i)
    picture(tmp_path / "data" / "bee" / "deep" / "x.JPG")
    (tmp_path / "data" / "dog").mkdir()
    (tmp_path / "data" / "cat" / "notes.txt").write_text("no image")
    return tmp_path / "data"


def test_subfolders_are_classes_in_the_order_of_their_names(classes: Path) -> None:
    images = open_images(classes)
    assert images.files == ("ant/0.png", "ant/1.png", "bee/deep/x.JPG", "cat/0.png", "cat/1.png", "cat/2.png")
    assert images.classes == ("ant", "bee", "cat")
    assert images.targets is not None
    assert images.targets.tolist() == [0, 0, 1, 2, 2, 2]
    assert images[5][1] == 2
    with pytest.raises(IndexError):
        images[6]


@pytest.mark.parametrize("left", ["__MACOSX/a", ".ipynb_checkpoints", ".hidden", "a/.ipynb_checkpoints", "a/__MACOSX"])
def test_what_programs_leave_in_folders_is_neither_a_class_nor_an_image(tmp_path: Path, left: str) -> None:
    for folder in ("a", "b", left):
        picture(tmp_path / folder / "0.png")
    (tmp_path / "aa").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("no image")
    images = open_images(tmp_path)
    assert images.files == ("a/0.png", "b/0.png")
    assert images.classes == ("a", "b")
    assert images[1][1] == 1


@pytest.mark.parametrize("flat", [False, True])
def test_pipes_and_loops_are_skipped_and_a_link_to_nothing_is_said(tmp_path: Path, flat: bool) -> None:
    folder = tmp_path if flat else tmp_path / "a"
    picture(folder / "0.png")
    os.mkfifo(folder / "1.png")
    (folder / "2.png").symlink_to(folder / "2.png")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "back").symlink_to(folder)
    (tmp_path / "up").symlink_to(tmp_path)
    images = open_images(tmp_path)
    assert images.files == (("0.png",) if flat else ("a/0.png",))
    (folder / "3.png").symlink_to(folder / "gone.png")
    with pytest.raises(UnreadableImageError, match=r"3\.png cannot be read"):
        open_images(tmp_path)[1]


def test_a_pipe_is_no_set_of_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a folder nor a file"):
        open_images(tmp_path / "pipe")


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        picture(tmp_path / name)
    (tmp_path / "empty").mkdir()
    images = open_images(tmp_path)
    assert images.files == ("a.png", "b.png")
    assert images.targets is None
    assert images.classes is None
    assert isinstance(images[0], torch.Tensor)


def test_labels_can_be_left_out(classes: Path) -> None:
    images = open_images(classes, labels=False)
    assert images.targets is None
    assert len(images) == 6


def test_a_limit_spreads_over_the_classes(classes: Path) -> None:
    images = open_images(classes, limit=3)
    assert images.targets is not None
    assert images.targets.tolist() == [0, 1, 2]
    assert len(open_images(classes, limit=99)) == 6


@pytest.mark.parametrize("what", ["nothing there", "no images", "mixed"])
def test_a_folder_that_cannot_be_meant(tmp_path: Path, what: str) -> None:
    if what == "mixed":
        picture(tmp_path / "a.png")
        picture(tmp_path / "class" / "b.png")
    path = tmp_path / "gone" if what == "nothing there" else tmp_path
    with pytest.raises(InputError, match=r"There is no|There are no images|a\.png beside class/"):
        open_images(path)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_named_in_one_line(classes: Path, workers: int) -> None:
    (classes / "bee" / "bad.png").write_bytes(b"not a picture")
    whole = (classes / "cat" / "0.png").read_bytes()
    (classes / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    loader = DataLoader(open_images(classes), batch_size=2, num_workers=workers)
    with pytest.raises(UnreadableImageError) as caught:
        list(loader)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        text = str(error)
        assert text.startswith(f"The image {classes / 'bee' / 'bad.png'} cannot be read")
        assert text.endswith("leave out such files with skip_unreadable=True.")
        assert "\n" not in text
        assert error.spelt(lambda argument: f"--{argument.name}").endswith("with --skip_unreadable.")

    images = open_images(classes, skip_unreadable=True)
    assert len(images) == 6
    assert images.targets is not None
    assert images.targets.tolist() == [0, 0, 1, 2, 2, 2]
    assert list(images.skipped) == ["bee/bad.png", "cat/cut.png"]
    assert "cannot identify" in images.skipped["bee/bad.png"]
    assert images.skipped["cat/cut.png"]
    assert not open_images(classes).skipped


def test_a_folder_of_damaged_images_alone(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="No image in"):
        open_images(tmp_path, skip_unreadable=True)


@pytest.mark.parametrize("grey", [False, True])
def test_an_array_file(tmp_path: Path, grey: bool) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (5, 4, 6) if grey else (5, 4, 6, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(5, dtype=np.uint8))
    images = open_images(tmp_path / "x.npz")
    images.preprocessing = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    x, label = images[3]
    expected = torch.from_numpy(pixels[3]).float() / 255
    expected = expected.expand(3, 4, 6) if grey else expected.permute(2, 0, 1)
    torch.testing.assert_close(x, (expected - 0.5) / 0.25)
    assert label == 3
    assert images.uniform


@pytest.mark.parametrize("what", ["no images", "floats", "shape", "labels", "not npz", "pickle", "npy"])
def test_an_array_file_that_cannot_be_used(tmp_path: Path, what: str) -> None:
    file, pixels = tmp_path / "x.npz", np.zeros((2, 4, 4, 3), dtype=np.uint8)
    if what == "not npz":
        file.write_bytes(b"hello")
    elif what == "npy":
        with open(file, "wb") as out:
            np.save(out, pixels)
    elif what == "pickle":
        np.savez(file, images=np.array([{}, None], dtype=object))
    else:
        arrays: dict[str, dict[str, Any]] = {
            "no images": {"x": pixels},
            "floats": {"images": pixels / 1.0},
            "shape": {"images": pixels[..., :2]},
        }
        np.savez(file, **arrays.get(what, {"images": pixels, "labels": np.zeros((2, 1))}))
    with pytest.raises(InputError, match=r"x\.npz"):
        open_images(file)


def test_two_array_files_have_two_identities(tmp_path: Path) -> None:
    for name, value in (("a", 0), ("b", 1)):
        np.savez(tmp_path / f"{name}.npz", images=np.full((2, 4, 4, 3), value, dtype=np.uint8))
    a, b = (open_images(tmp_path / f"{name}.npz").identity for name in "ab")
    assert a != b


@pytest.mark.parametrize("size", [(40, 31), (31, 40), (16, 16), (17, 93)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("crop_pct", "crop_mode"), [(0.875, "center"), (1.0, "center"), (0.9, "squash")])
def test_preprocessing_is_that_of_timm(
    size: tuple[int, int], interpolation: str, crop_pct: float, crop_mode: str
) -> None:
    data = pytest.importorskip("timm.data")
    config = {"input_size": (3, 24, 24), "interpolation": interpolation, "crop_pct": crop_pct, "crop_mode": crop_mode}
    config |= {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    torch.testing.assert_close(Preprocessing.from_config(config)(image), data.create_transform(**config)(image))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_every_kind_of_picture_becomes_three_channels(mode: str) -> None:
    assert Preprocessing(size=(8, 8))(Image.new(mode, (20, 10))).shape == (3, 8, 8)
    assert Preprocessing(size=(8, 8), mean=(0.5,), std=(0.5,))(Image.new(mode, (20, 10))).shape == (1, 8, 8)


RAMP = np.linspace(0, 1, 64).reshape(8, 8)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_grey_images_of_16_bits_are_scaled(tmp_path: Path, suffix: str) -> None:
    Image.fromarray((RAMP * 65_535).astype(np.uint16)).save(tmp_path / f"wide.{suffix}")
    Image.fromarray((RAMP * 255).astype(np.uint8)).save(tmp_path / f"narrow.{suffix}")
    narrow, wide = open_images(tmp_path)
    torch.testing.assert_close(wide, narrow, rtol=0, atol=0.02)


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I", "F"])
def test_deep_pictures_are_scaled(mode: str) -> None:
    types = {"I;16": ("<u2", 65_535), "I;16B": (">u2", 65_535), "I": ("<i4", 65_535), "F": ("<f4", 1)}
    kind, top = types[mode]
    deep = Image.frombytes(mode, (8, 8), (RAMP * top).astype(kind).tobytes())
    assert deep.mode == mode
    x = Preprocessing(mean=(0.0,), std=(1.0,))(deep)
    torch.testing.assert_close(x[0], torch.from_numpy(RAMP).float(), rtol=0, atol=1 / 255)


@pytest.mark.parametrize("worst", [-1.0, 200.0, np.nan, 70_000])
def test_a_picture_without_a_scale_is_refused_and_named(tmp_path: Path, worst: float) -> None:
    values = (RAMP * 0 + worst).astype(np.int32 if worst == 70_000 else np.float32)
    Image.fromarray(values).save(tmp_path / "deep.tif")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "grey.tif")
    with pytest.raises(UnreadableImageError, match=r"deep\.tif cannot be read \(Its pixels are"):
        open_images(tmp_path)[0]
    assert list(open_images(tmp_path, skip_unreadable=True).skipped) == ["deep.tif"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": (120, 120, 120)}, r"mean=\(120, 120, 120\) .* in \[0, 1\]\. Did you mean 120/255 = 0\.47\?"),
        ({"std": (58.0, 57.0, 57.0)}, r"Did you mean 58/255 = 0\.23\? Pass std=\(0\.2275, 0\.2235, 0\.2235\)\."),
        ({"mean": (float("nan"),), "std": (1.0,)}, r"out of range"),
        ({"mean": (0.5, 0.5, 300.0)}, r"out of range: mean and std are of pixels in \[0, 1\]\.$"),
    ],
)
def test_numbers_of_pixels_up_to_255_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Preprocessing(**settings)
    assert next(iter(settings)) in {part.name for part in caught.value.parts if isinstance(part, Argument)}


@pytest.mark.parametrize(
    "settings",
    [{"mean": (0.5, 0.5)}, {"std": (0.0, 1.0, 1.0)}, {"interpolation": "magic"}, {"crop_pct": 0.0}, {"size": (0, 8)}],
)
def test_preprocessing_that_cannot_be_meant(settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Preprocessing(**settings)  # type: ignore[arg-type]


def test_a_crop_mode_of_its_own_is_refused() -> None:
    with pytest.raises(InputError, match=r"border.* Give size=…, mean=… and std=…\."):
        Preprocessing.from_config({"crop_mode": "border"})
