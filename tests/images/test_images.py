"""Image folders and arrays: order, labels, preprocessing, and what cannot be read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from heat_ood.errors import InputError
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
    assert images.classes == ("ant", "bee", "cat", "dog")
    assert images.targets is not None
    assert images.targets.tolist() == [0, 0, 1, 2, 2, 2]
    assert images[5][1] == 2
    with pytest.raises(IndexError):
        images[6]


def test_an_empty_class_folder_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    picture(tmp_path / "b" / "0.png")
    assert open_images(tmp_path)[0][1] == 1


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
