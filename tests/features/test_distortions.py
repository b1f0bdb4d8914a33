"""Distortions: each does what it says, to any image, and the same for the same seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from heat_ood.errors import InputError
from heat_ood.features._distortions import CONTRAST, KINDS, check_kinds, distort

SHAPES = [(6, 3, 16, 16), (1, 1, 7, 5), (1, 3, 12, 9), (5, 1, 4, 4), (2, 4, 3, 8), (3, 2, 1, 6), (2, 3, 1, 1)]


def pictures(shape: tuple[int, ...] = (8, 3, 16, 16), seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Smooth shapes with some texture, normalised as for a network; no two pixels are alike."""
    g = torch.Generator().manual_seed(seed)
    n, c, h, w = shape
    coarse = torch.randn(n, c, 3, 3, generator=g, dtype=torch.float64)
    smooth = interpolate(coarse, size=(h, w), mode="bicubic", align_corners=False)
    return (smooth + 0.2 * torch.randn(shape, generator=g, dtype=torch.float64)).to(dtype)


def apply(kind: str, images: Tensor, seed: int = 0) -> Tensor:
    return distort(images, (kind,), torch.Generator().manual_seed(seed))[0]


# Every kind


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_images_of_any_shape_stay_images(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    images = pictures(shape, dtype=dtype)
    before = images.clone()
    distorted = apply(kind, images)
    assert distorted.shape == images.shape
    assert distorted.dtype == dtype
    assert distorted.isfinite().all()
    assert torch.equal(images, before)


@pytest.mark.parametrize(
    ("kind", "shape"), [(k, s) for k in KINDS for s in SHAPES if s[2] > 1 and (k, s[1]) != ("colour", 1)]
)
def test_no_image_is_left_as_it_was(kind: str, shape: tuple[int, ...]) -> None:
    images = pictures(shape)
    for seed in range(20):
        change = (apply(kind, images, seed) - images).square().mean((1, 2, 3)).sqrt()
        assert (change > 0.01 * images.std()).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind: str) -> None:
    images = pictures((40, 3, 12, 12))
    assert torch.equal(apply(kind, images, 3), apply(kind, images, 3))
    assert torch.equal(apply(kind, images, 3), apply(kind, images, 4)) == (kind == "invert")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("rotate", "invert")])
def test_each_image_has_draws_of_its_own(kind: str) -> None:
    """Equal images, distorted together, differ."""
    images = pictures((2, 3, 12, 12))[[0] * 6 + [1] * 6]
    distorted = apply(kind, images).flatten(1)
    assert len(distorted.unique(dim=0)) > 6


@pytest.mark.parametrize("kind", KINDS)
def test_the_draws_do_not_depend_on_the_precision(kind: str) -> None:
    images = pictures((6, 3, 12, 12), dtype=torch.float32)
    torch.testing.assert_close(apply(kind, images), apply(kind, images.double()).float(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layout_of_memory_does_not_matter(kind: str) -> None:
    images = pictures()
    last = images.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(apply(kind, last), apply(kind, images), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 5, 12, 37])
@pytest.mark.parametrize("kinds", [("noise",), CONTRAST, tuple(KINDS)])
def test_kinds_take_turns(kinds: tuple[str, ...], n: int) -> None:
    images, starts = pictures((n, 1, 6, 6)), set()
    for seed in range(60):
        distorted, kind = distort(images, kinds, torch.Generator().manual_seed(seed))
        counts = kind.bincount(minlength=len(kinds))
        assert counts.max() - counts.min() <= 1
        assert len(distorted) == len(kind) == n
        starts.add(int(kind[0]))
    assert len(starts) > len(kinds) / 2


def test_each_image_is_distorted_by_the_kind_that_is_told() -> None:
    images = pictures((9, 3, 8, 8))
    distorted, kind = distort(images, ("invert", "rotate", "tone"), torch.Generator().manual_seed(1))
    inverted, mean = 2 * images.mean((0, 2, 3), keepdim=True) - images, (2, 3)
    torch.testing.assert_close(distorted[kind == 0], inverted[kind == 0])
    assert torch.equal(distorted[kind == 1].flatten(2).sort().values, images[kind == 1].flatten(2).sort().values)
    torch.testing.assert_close(distorted[kind == 2].mean(mean), images[kind == 2].mean(mean))
    assert kind.bincount().tolist() == [3, 3, 3]


@pytest.mark.parametrize("kinds", ["noise", (), None, ("fog",), ("noise", "fog"), ("noise", "blur", "noise")])
def test_kinds_that_there_are_not(kinds: Any) -> None:
    with pytest.raises(InputError, match=r"kinds cannot be .* Pass a tuple of jigsaw-2, .*phase.* each once"):
        check_kinds(kinds)
    with pytest.raises(InputError, match="kinds cannot be"):
        distort(pictures(), kinds, torch.Generator())


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), r"torch.uint8 \(2, 3, 8, 8\)"),
        (torch.zeros(2, 12, dtype=torch.long), r"torch.int64 \(2, 12\)"),
        (torch.zeros(3, 8, 8), r"torch.float32 \(3, 8, 8\)"),
        (torch.zeros(2, 3, 4, 8, 8), r"torch.float32 \(2, 3, 4, 8, 8\)"),
    ],
)
def test_what_is_no_image(inputs: Tensor, named: str) -> None:
    with pytest.raises(InputError, match=rf"Only images can be distorted.*{named}\. For other inputs pass contrast"):
        distort(inputs, ("noise",), torch.Generator())


# One kind


def pieces_of(image: Tensor, down: int, across: int) -> list[Tensor]:
    h, w = image.shape[1] // down, image.shape[2] // across
    return [image[:, i * h : (i + 1) * h, j * w : (j + 1) * w] for i in range(down) for j in range(across)]


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("size", [(8, 8), (9, 7), (11, 6), (3, 5)])
def test_jigsaw_moves_pieces(parts: int, size: tuple[int, int]) -> None:
    down, across = (min(parts, side) for side in size)
    images, orders = pictures((300, 2, *size)), set()
    h, w = size[0] // down * down, size[1] // across * across
    for image, distorted in zip(images, apply(f"jigsaw-{parts}", images), strict=True):
        before, after = pieces_of(image, down, across), pieces_of(distorted, down, across)
        order = tuple(next(i for i, b in enumerate(before) if torch.equal(a, b)) for a in after)
        assert sorted(order) == list(range(down * across))
        assert order != tuple(range(down * across))
        assert torch.equal(distorted[:, h:], image[:, h:])
        assert torch.equal(distorted[:, :, w:], image[:, :, w:])
        orders.add(order)
    assert len(orders) == 23 if parts == 2 else len(orders) > 290


def test_jigsaw_of_fewer_pixels_than_parts() -> None:
    images = pictures((50, 1, 1, 3))
    distorted = apply("jigsaw-4", images)
    assert torch.equal(distorted.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
    assert (distorted != images).flatten(1).any(1).all()


def test_mixup_lies_between_an_image_and_another() -> None:
    images = pictures((12, 3, 8, 8))
    partners = set()
    for seed in range(30):
        for i, mixed in enumerate(apply("mixup", images, seed)):
            others = images[[j for j in range(12) if j != i]]
            direction = (others - images[i]).flatten(1)
            share = direction @ (mixed - images[i]).flatten() / direction.square().sum(1)
            exact = torch.isclose(share[:, None] * direction, (mixed - images[i]).flatten(), atol=1e-9).all(1)
            assert exact.sum() == 1
            assert 0.3 <= share[exact] <= 0.7
            partners.add((i, int(exact.nonzero())))
    assert len(partners) > 100


def test_cutmix_is_a_rectangle_of_another_image() -> None:
    images = pictures((12, 3, 20, 30))
    corners = set()
    for seed in range(30):
        for i, mixed in enumerate(apply("cutmix", images, seed)):
            inside = (mixed != images[i]).all(0)
            rows, columns = inside.any(1), inside.any(0)
            assert torch.equal(inside, rows[:, None] & columns)
            assert torch.equal(mixed[:, ~inside], images[i][:, ~inside])
            others = [j for j in range(12) if j != i and torch.equal(mixed[:, inside], images[j][:, inside])]
            assert len(others) == 1
            for side, size in ((rows, 20), (columns, 30)):
                place = side.nonzero().flatten()
                assert len(place) == place[-1] - place[0] + 1
                assert 0.5 * size - 1 <= len(place) <= 0.8 * size + 1
            corners.add((int(rows.nonzero()[0]), int(columns.nonzero()[0])))
    assert len(corners) > 50


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_an_image_alone_is_mixed_with_itself_upside_down(kind: str) -> None:
    image = pictures((1, 3, 8, 8))
    mixed, turned = apply(kind, image), image.flip(2, 3)
    assert (mixed <= torch.maximum(image, turned)).all()
    assert (mixed >= torch.minimum(image, turned)).all()
    assert not torch.allclose(mixed, image)


def test_noise_has_the_announced_level() -> None:
    images = pictures((300, 2, 16, 16)) * torch.tensor([1.0, 5.0]).view(1, 2, 1, 1)
    added = apply("noise", images) - images
    level = added.flatten(2).std(2) / images.std((0, 2, 3), correction=0)
    torch.testing.assert_close(level[:, 0], level[:, 1], rtol=0.35, atol=0)
    assert level.min() > 0.08
    assert level.max() < 1.15
    torch.testing.assert_close(level.log10().mean(), torch.tensor(-0.5).double(), rtol=0, atol=0.06)
    assert (added.mean((2, 3)) / added.flatten(2).std(2)).abs().max() < 5 / 16


def test_blur_keeps_constants_and_lowers_the_spread() -> None:
    constant = torch.full((3, 2, 9, 14), 1.7, dtype=torch.float64)
    torch.testing.assert_close(apply("blur", constant), constant)
    images = pictures((20, 3, 32, 32))
    blurred = apply("blur", images)
    assert (blurred.flatten(2).var(2) < images.flatten(2).var(2)).all()
    assert (blurred.mean((2, 3)) - images.mean((2, 3))).abs().max() < 0.15 * images.std()
    steps, before = blurred.diff(dim=3).square().mean((1, 2, 3)), images.diff(dim=3).square().mean((1, 2, 3))
    assert (steps < 0.5 * before).all()


def test_blur_of_a_point_is_a_gaussian() -> None:
    point = torch.zeros(30, 1, 41, 41, dtype=torch.float64)
    point[:, :, 20, 20] = 1
    blurred = apply("blur", point)
    place = torch.arange(-20, 21).double()
    torch.testing.assert_close(blurred.sum((1, 2, 3)), torch.ones(30, dtype=torch.float64))
    torch.testing.assert_close(blurred, blurred.mT)
    widths = (blurred.sum((1, 2)) * place.square()).sum(1).sqrt() / 41
    assert widths.min() > 0.029
    assert widths.max() < 0.1
    assert widths.max() > 2 * widths.min()


def test_rotate_turns_by_quarters() -> None:
    images, found = pictures((60, 2, 6, 6)), set()
    for image, turned in zip(images, apply("rotate", images), strict=True):
        (quarters,) = [k for k in range(4) if torch.equal(turned, image.rot90(k, (1, 2)))]
        found.add(quarters)
    assert found == {1, 2, 3}


def test_the_same_turn_four_times_is_none() -> None:
    images = pictures((20, 2, 6, 6))
    turned = images
    for _ in range(4):
        turned = apply("rotate", turned, seed=5)
    assert torch.equal(turned, images)


def test_rotate_turns_what_is_not_square_upside_down() -> None:
    images = pictures((4, 2, 6, 9))
    assert torch.equal(apply("rotate", images), images.flip(2, 3))


def test_invert_twice_gives_back() -> None:
    images = pictures() + 3
    negative = apply("invert", images)
    torch.testing.assert_close(negative.mean((0, 2, 3)), images.mean((0, 2, 3)))
    torch.testing.assert_close(
        negative - negative.mean((0, 2, 3), keepdim=True), 3 - images + (images - 3).mean((0, 2, 3), keepdim=True)
    )
    torch.testing.assert_close(apply("invert", negative), images)


def test_colour_mixes_channels_and_moves_no_pixel() -> None:
    images = pictures((30, 3, 10, 10))
    for image, coloured in zip(images, apply("colour", images), strict=True):
        x = torch.cat([image.flatten(1), torch.ones(1, 100, dtype=torch.float64)]).T
        solution = torch.linalg.lstsq(x, coloured.flatten(1).T)
        torch.testing.assert_close(x @ solution.solution, coloured.flatten(1).T)
        spread = images.std((0, 2, 3), correction=0)
        unit = solution.solution[:3].T * spread / spread[:, None]
        torch.testing.assert_close(unit.norm(dim=1), torch.ones(3, dtype=torch.float64))


def test_colour_of_one_channel_is_a_sign_and_a_shift() -> None:
    images = pictures((40, 1, 8, 8))
    coloured = apply("colour", images)
    sign = (
        ((coloured - coloured.mean((2, 3), keepdim=True)) * (images - images.mean((2, 3), keepdim=True)))
        .sum((1, 2, 3))
        .sign()
    )
    moved = (coloured - sign.view(-1, 1, 1, 1) * images).flatten(1)
    torch.testing.assert_close(moved, moved[:, :1].expand_as(moved))
    assert set(sign.tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_channel_that_never_varies_does_not_blow_up_the_others(dtype: torch.dtype) -> None:
    images = pictures((20, 3, 16, 16), dtype=dtype)
    images[:, 1] = 0.3
    for kind in KINDS:
        assert apply(kind, images).abs().max() < 8 * images.abs().max()
    assert apply("colour", torch.zeros(2, 3, 4, 4, dtype=dtype)).abs().max() < 1e-6


def test_tone_keeps_the_mean_and_scales_the_rest() -> None:
    images = pictures((200, 3, 8, 8)) + 2
    changed = apply("tone", images)
    mean = images.mean((2, 3), keepdim=True)
    torch.testing.assert_close(changed.mean((2, 3), keepdim=True), mean)
    factor = changed.std((2, 3), keepdim=True) / images.std((2, 3), keepdim=True)
    torch.testing.assert_close(factor, factor[:, :1].expand_as(factor))
    torch.testing.assert_close(changed - mean, factor * (images - mean))
    low = factor[:, 0].flatten() < 1
    assert 60 < low.sum() < 140
    assert factor[low].min() >= 0.05
    assert factor[low].max() <= 0.35
    assert factor[~low].min() >= 2
    assert factor[~low].max() <= 4


@pytest.mark.parametrize("kind", ["zoom", "warp", "phase", "rotate", "jigsaw-4", "tone"])
def test_what_moves_pixels_keeps_a_constant(kind: str) -> None:
    constant = torch.full((4, 3, 9, 12), -0.7, dtype=torch.float64)
    torch.testing.assert_close(apply(kind, constant), constant)


def test_zoom_enlarges_a_piece() -> None:
    """Of a ramp: its slope becomes that of an eighth to three eighths of it, and its values stay in range."""
    ramp = torch.linspace(0, 1, 64, dtype=torch.float64).expand(100, 1, 64, 64)
    near = apply("zoom", ramp)
    slope = near[:, 0, 32, 8:-8].diff(dim=1)
    inner = slope.amin(1) > 0  # the others lie at a border, where the ramp is reflected
    assert inner.sum() > 60
    scale = slope[inner].mean(1) * 63
    assert scale.min() > 0.12
    assert scale.max() < 0.385
    assert scale.max() - scale.min() > 0.15
    assert near.min() > -0.05
    assert near.max() < 1.05


def test_warp_displaces_by_about_a_tenth() -> None:
    """Of two ramps: their change is the displacement, as a share of the image's width."""
    ramp = torch.linspace(0, 1, 64, dtype=torch.float64)
    both = torch.stack([ramp.expand(64, 64), ramp[:, None].expand(64, 64)]).expand(100, 2, 64, 64)
    moved = (apply("warp", both) - both)[:, :, 24:40, 24:40]
    assert 0.05 < moved.square().mean().sqrt() < 0.2
    assert moved.abs().max() < 0.8
    assert moved.diff(dim=3).abs().max() < 0.1
    assert apply("warp", both).min() >= 0
    assert apply("warp", both).max() <= 1


@pytest.mark.parametrize("size", [(16, 16), (7, 5), (8, 5), (5, 8), (1, 6)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_phase_keeps_the_amplitudes(size: tuple[int, int], dtype: torch.dtype, tolerance: float) -> None:
    """At every frequency of the whole spectrum: those that are their own mirror, as the highest of an even side,
    must stay real, and do since the phases are of a real image."""
    images = pictures((6, 3, *size), dtype=dtype)
    before, after = (torch.fft.fft2(x) for x in (images, apply("phase", images)))
    torch.testing.assert_close(after.abs(), before.abs(), rtol=tolerance, atol=tolerance)
    turn = after / before
    torch.testing.assert_close(turn, turn[:, :1].expand_as(turn), rtol=10 * tolerance, atol=10 * tolerance)
    torch.testing.assert_close(turn[..., 0, 0].real, torch.ones(6, 3, dtype=dtype), rtol=tolerance, atol=tolerance)
    own = turn[:, 0, size[0] // 2 if size[0] % 2 == 0 else 0, size[1] // 2 if size[1] % 2 == 0 else 0]
    assert own.imag.abs().max() < 10 * tolerance


def test_phases_are_spread_evenly() -> None:
    images = pictures((40, 1, 16, 16))
    turn = torch.fft.fft2(apply("phase", images)) / torch.fft.fft2(images)
    assert turn[:, 0, 1:8, 1:8].mean().abs() < 0.1


def test_the_old_name_of_a_kind_still_works_and_says_the_new_one() -> None:
    images = torch.rand(4, 3, 8, 8)
    with pytest.warns(DeprecationWarning, match=r"'contrast' is called 'tone'"):
        old, _ = distort(images, ("contrast",), torch.Generator().manual_seed(0))
    new, _ = distort(images, ("tone",), torch.Generator().manual_seed(0))
    assert torch.equal(old, new)
