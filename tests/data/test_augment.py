"""Augmentation: a pure function of (seed, split, episode, position), in the image, true to the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from parashot.data.augment import Augmentation, augment, augmentation_keys, crop_boxes, draw_choices
from parashot.data.episodes import SPLITS, uniforms
from parashot.data.pixels import resize

ALL = Augmentation(crop=0.4, flip=True, jitter=0.5)

GOLDEN = [
    [0.8833107948303223, 0.4315279722213745, 0.02643376588821411],
    [0.5665615200996399, 0.7457817196846008, 0.9710026979446411],
    [0.0886504054069519, 0.5575479865074158, 0.8825013041496277],
]
GOLDEN_KEYS = [1703872083709136998, 244121568247306810]


def keys_of(*episodes: int, seed: int = 0) -> Tensor:
    return augmentation_keys(seed, "train", torch.tensor(episodes))


def random_images(b: int, m: int, h: int, w: int, seed: int = 0) -> Tensor:
    """Pixels [b, m, 3, h, w] that lie channels last, as the loaders hand them over."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (b, m, h, w, 3), dtype=np.uint8)).movedim(-1, -3)


# --- the numbers --------------------------------------------------------------------------------------


def test_golden_numbers() -> None:
    """Drawn once and never to change: a restart or another version must see the same pixels."""
    assert uniforms(np.array([0, 1, -5]), 3).tolist() == GOLDEN
    assert augmentation_keys(3, "val", torch.tensor([0, 10**12])).tolist() == GOLDEN_KEYS


@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6), count=st.integers(1, 5))
def test_numpy_and_torch_draw_the_same_numbers(keys: list[int], count: int) -> None:
    drawn, same = uniforms(np.array(keys), count), uniforms(torch.tensor(keys), count)
    assert drawn.dtype == np.float32
    assert same.dtype == torch.float32
    assert drawn.shape == (len(keys), count)
    assert drawn.tolist() == same.tolist()
    assert 0 <= drawn.min() <= drawn.max() < 1


def test_numbers_are_uniform_and_counters_uncorrelated() -> None:
    """Within six standard errors of 50,000 draws; neighbouring keys count as draws."""
    numbers = uniforms(np.arange(50_000), 4).astype(np.float64)
    error = 6 / np.sqrt(50_000)
    np.testing.assert_allclose(numbers.mean(0), 0.5, atol=error * np.sqrt(1 / 12))
    np.testing.assert_allclose(numbers.var(0), 1 / 12, atol=error * np.sqrt(1 / 180))
    together = np.concatenate([numbers[1:], numbers[:-1]], axis=1)
    np.testing.assert_allclose(np.corrcoef(together.T), np.eye(8), atol=error)


# --- which pixels come out ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe", [Augmentation(), Augmentation(crop=0.9), Augmentation(flip=True), Augmentation(jitter=0.1)]
)
def test_any_knob_makes_a_recipe_active(recipe: Augmentation) -> None:
    images = random_images(2, 8, 9, 9)
    assert recipe.active == (recipe != Augmentation())
    assert torch.equal(augment(images, keys_of(0, 1), recipe, 9), images.float()) != recipe.active


@settings(max_examples=30, deadline=None)
@given(h=st.integers(1, 40), w=st.integers(1, 40), size=st.integers(1, 40))
def test_the_whole_image_is_resized_as_without_augmentation(h: int, w: int, size: int) -> None:
    images = random_images(1, 2, h, w)
    plain = augment(images, keys_of(7), Augmentation(), size)
    torch.testing.assert_close(plain, resize(images, size).float(), atol=2e-2, rtol=0)


@settings(max_examples=40, deadline=None)
@given(
    crop=st.floats(0.05, 1),
    flip=st.booleans(),
    jitter=st.floats(0, 1),
    h=st.integers(1, 30),
    w=st.integers(1, 30),
    size=st.integers(1, 30),
    floating=st.booleans(),
)
def test_any_recipe_gives_pixels_channels_last(
    crop: float, flip: bool, jitter: float, h: int, w: int, size: int, floating: bool
) -> None:
    images = random_images(2, 3, h, w)
    images = images.double().contiguous() if floating else images
    result = augment(images, keys_of(5, 6), Augmentation(crop, flip, jitter), size)
    assert result.shape == (2, 3, 3, size, size)
    assert result.dtype == torch.float32
    assert result.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    assert -1e-3 <= result.min() <= result.max() <= 255 + 1e-3


def test_the_images_handed_over_stay_as_they_are() -> None:
    images = random_images(2, 3, 9, 9).float()
    before = images.clone()
    for recipe in (ALL, Augmentation(jitter=0.5), Augmentation(flip=True)):
        augment(images, keys_of(0, 1), recipe, 9)
    assert torch.equal(images, before)


# --- independence -------------------------------------------------------------------------------------


def test_an_episode_does_not_depend_on_its_neighbours() -> None:
    images, size = random_images(3, 4, 20, 20), 12
    together = augment(images, keys_of(3, 5, 9), ALL, size)
    for index, episode in enumerate((3, 5, 9)):
        alone = augment(images[index : index + 1], keys_of(episode), ALL, size)
        torch.testing.assert_close(alone[0], together[index], atol=1e-4, rtol=0)


def test_neither_memory_order_nor_half_precision_around_it_changes_the_pixels() -> None:
    images, keys = random_images(2, 3, 20, 17), keys_of(0, 1)
    expected = augment(images, keys, ALL, 16)
    assert torch.equal(augment(images.contiguous(), keys, ALL, 16), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(augment(images, keys, ALL, 16), expected)


@pytest.mark.parametrize("recipe", [Augmentation(crop=0.4), Augmentation(jitter=0.5), ALL])
def test_every_image_of_every_episode_changes_its_own_way(recipe: Augmentation) -> None:
    images = random_images(1, 1, 12, 12).expand(3, 4, 3, 12, 12)
    results = [
        augment(images, augmentation_keys(seed, split, torch.arange(3)), recipe, 12)
        for seed in (0, 1)
        for split in SPLITS
    ]
    distinct = torch.stack(results).flatten(0, 2).flatten(1).unique(dim=0)
    assert len(distinct) == 2 * 3 * 3 * 4


def test_nothing_waits_for_the_device() -> None:
    """On tensors without data, anything that has to look at a value, or mixes devices, fails."""
    with FakeTensorMode():
        images = torch.empty(2, 3, 3, 20, 20, dtype=torch.uint8, device="cuda")
        keys = augmentation_keys(0, "train", torch.arange(2, device="cuda"))
        for recipe in (ALL, Augmentation(flip=True)):
            result = augment(images, keys, recipe, 20)
            assert (result.device.type, result.dtype) == ("cuda", torch.float32)


# --- flip ---------------------------------------------------------------------------------------------


def test_half_the_images_are_exact_mirrors() -> None:
    images, keys = random_images(100, 20, 6, 6), keys_of(*range(100))
    mirrored = draw_choices(keys, 20).flip < 0.5
    expected = torch.where(mirrored[..., None, None, None], images.flip(-1), images).float()
    assert torch.equal(augment(images, keys, Augmentation(flip=True), 6), expected)
    assert abs(mirrored.float().mean().item() - 0.5) < 6 * 0.5 / 2000**0.5


def test_a_mirrored_crop_is_the_mirror_of_the_crop() -> None:
    """So one option leaves what the other does."""
    images, keys = random_images(4, 10, 20, 20), keys_of(*range(4))
    plain = augment(images, keys, Augmentation(crop=0.3), 14)
    flipped = augment(images, keys, Augmentation(crop=0.3, flip=True), 14)
    mirrored = (draw_choices(keys, 10).flip < 0.5)[..., None, None, None]
    expected = torch.where(mirrored, plain.flip(-1), plain)
    torch.testing.assert_close(flipped, expected, atol=2e-3, rtol=0)
    assert 0 < mirrored.sum() < mirrored.numel()


# --- crop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crop", [0.05, 0.9])
def test_crops_lie_in_the_image_with_the_area_and_shape_asked_for(crop: float) -> None:
    left, top, width, height = crop_boxes(draw_choices(keys_of(*range(5000)), 2), crop)
    assert min(left.min(), top.min()) >= 0
    assert max((left + width).max(), (top + height).max()) <= 1 + 1e-6
    area, aspect = width * height, width / height
    assert crop - 1e-5 <= area.min() <= area.max() <= 1 + 1e-5
    assert 3 / 4 - 1e-5 <= aspect.min() <= aspect.max() <= 4 / 3 + 1e-5
    error = 6 / 10_000**0.5
    assert abs(area.mean() - (1 + crop) / 2) < error * (1 - crop) / 12**0.5
    assert abs(aspect.log().mean()) < error * aspect.log().std()
    assert abs((left + width / 2).mean() - 0.5) < error * (left + width / 2).std()
    choices = torch.stack([area, aspect.log(), left / (1 - width), top / (1 - height)])
    torch.testing.assert_close(choices.flatten(1).corrcoef(), torch.eye(4), atol=error, rtol=0)


def test_a_crop_enlarged_is_what_bilinear_sampling_gives() -> None:
    images, keys = random_images(3, 4, 10, 14), keys_of(0, 1, 2)
    result = augment(images, keys, Augmentation(crop=0.5), 24).flatten(0, 1)
    left, top, width, height = (each.flatten() for each in crop_boxes(draw_choices(keys, 4), 0.5))
    zero = torch.zeros_like(width)
    across = torch.stack([width, zero, 2 * left + width - 1], -1)
    down = torch.stack([zero, height, 2 * top + height - 1], -1)
    grid = F.affine_grid(torch.stack([across, down], 1), [12, 3, 24, 24], align_corners=False)
    pixels = images.flatten(0, 1).float()
    sampled = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    torch.testing.assert_close(result, sampled, atol=2e-2, rtol=0)


def test_a_fine_pattern_reduced_turns_grey_and_does_not_alias() -> None:
    stripes = torch.tensor([0.0, 255.0]).repeat(32).expand(1, 20, 3, 64, 64)
    result = augment(stripes, keys_of(0), Augmentation(crop=0.6), 16)
    assert (result - 127.5).abs().max() < 20


# --- jitter -------------------------------------------------------------------------------------------


def test_brightness_contrast_and_saturation_follow_one_another() -> None:
    """Against the three steps written out one by one, where nothing is cut off."""
    jitter, keys = 0.2, keys_of(0, 1)
    images = 100 + random_images(2, 5, 8, 8).double() / 6
    draws = draw_choices(keys, 5)
    brightness, contrast, saturation = (
        (1 - jitter + 2 * jitter * draw.double())[..., None, None, None]
        for draw in (draws.brightness, draws.contrast, draws.saturation)
    )
    expected = images * brightness
    expected = luma(expected).mean((-1, -2), keepdim=True).lerp(expected, contrast)
    expected = luma(expected).lerp(expected, saturation)
    assert expected.max() < 255
    result = augment(images, keys, Augmentation(jitter=jitter), 8)
    torch.testing.assert_close(result.double(), expected, atol=1e-3, rtol=0)


def luma(images: Tensor) -> Tensor:
    """Grey of ITU-R BT.601: [..., 3, h, w] -> [..., 3, h, w], three times the same."""
    red, green, blue = images.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3).expand_as(images)


def test_what_is_too_bright_is_cut_off() -> None:
    images = random_images(4, 8, 12, 12)
    result = augment(images, keys_of(*range(4)), Augmentation(jitter=1.0), 12)
    assert (result.min(), result.max()) == (0, 255)
