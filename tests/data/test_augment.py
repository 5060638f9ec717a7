"""Augmentation: a pure function of (seed, split, episode, position), in the image, true to the pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from parashot.data.augment import augment, crop_boxes, draw_choices
from parashot.data.episodes import AUGMENTATION, SPLITS, episode_keys, uniforms
from parashot.data.pixels import resize
from parashot.params import AugmentParams


def recipe_of(crop: float = 1.0, flip: bool = False, jitter: float = 0.0) -> AugmentParams:
    return AugmentParams(crop, flip, jitter)


ALL = recipe_of(crop=0.4, flip=True, jitter=0.5)

GOLDEN = [
    [0.8833107948303223, 0.4315279722213745, 0.02643376588821411],
    [0.5665615200996399, 0.7457817196846008, 0.9710026979446411],
    [0.0886504054069519, 0.5575479865074158, 0.8825013041496277],
]
GOLDEN_KEYS = [1703872083709136998, 244121568247306810]


def keys_of(*episodes: int) -> Tensor:
    return episode_keys(0, "train", torch.tensor(episodes), AUGMENTATION)


def random_images(b: int, m: int, h: int, w: int) -> Tensor:
    """Pixels [b, m, 3, h, w] that lie channels last, as the loaders hand them over."""
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (b, m, h, w, 3), dtype=np.uint8)).movedim(-1, -3)


def test_golden_numbers() -> None:
    """Drawn once and never to change: a restart or another version must see the same pixels."""
    numbers = uniforms(torch.tensor([0, 1, -5]), 3)
    assert (numbers.tolist(), numbers.dtype) == (GOLDEN, torch.float32)
    kinds: tuple[Any, ...] = (np.array, torch.tensor)  # which hash alike
    for kind in kinds:
        assert episode_keys(3, "val", kind([0, 10**12]), AUGMENTATION).tolist() == GOLDEN_KEYS


@pytest.mark.parametrize(
    "recipe", [recipe_of(), recipe_of(crop=0.9), recipe_of(flip=True), recipe_of(jitter=0.1)]
)
def test_any_knob_makes_a_recipe_active_and_leaves_what_it_was_given(recipe: AugmentParams) -> None:
    images = random_images(2, 8, 9, 9).float()
    before = images.clone()
    assert recipe.active == (recipe != recipe_of())
    assert torch.equal(augment(images, keys_of(0, 1), recipe, 9), before) != recipe.active
    assert torch.equal(images, before)


@pytest.mark.parametrize(("h", "w", "size"), [(9, 14, 16), (40, 30, 16), (1, 5, 7)])
def test_the_whole_image_is_resized_as_without_augmentation(h: int, w: int, size: int) -> None:
    images = random_images(1, 2, h, w)
    plain = augment(images, keys_of(7), recipe_of(), size)
    torch.testing.assert_close(plain, resize(images, size).float(), atol=2e-2, rtol=0)


@pytest.mark.parametrize(
    ("recipe", "size"), [(ALL, 12), (ALL, 30), (recipe_of(flip=True), 20), (recipe_of(jitter=1.0), 20)]
)
def test_any_recipe_gives_pixels_channels_last(recipe: AugmentParams, size: int) -> None:
    """Whatever the memory order and the type, half precision around it, and the other episodes.

    What is too bright is cut off.
    """
    images, keys = random_images(4, 8, 20, 20), keys_of(*range(4))
    result = augment(images, keys, recipe, size)
    assert (result.shape, result.dtype) == ((4, 8, 3, size, size), torch.float32)
    assert result.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    assert -1e-3 <= result.min() <= result.max() <= 255 + 1e-3
    assert recipe.jitter < 1 or (result.min().item(), result.max().item()) == (0, 255)
    with torch.autocast("cpu", torch.bfloat16):
        again = augment(images.double().contiguous(), keys, recipe, size)
    torch.testing.assert_close(again, result, atol=1e-3, rtol=0)
    alone = augment(images[2:3], keys[2:3], recipe, size)
    torch.testing.assert_close(alone[0], result[2], atol=1e-4, rtol=0)


@pytest.mark.parametrize("recipe", [recipe_of(crop=0.4), recipe_of(jitter=0.5), ALL])
def test_every_image_of_every_episode_changes_its_own_way(recipe: AugmentParams) -> None:
    images = random_images(1, 1, 12, 12).expand(3, 4, 3, 12, 12)
    results = [
        augment(images, episode_keys(seed, split, torch.arange(3), AUGMENTATION), recipe, 12)
        for seed in (0, 1)
        for split in SPLITS
    ]
    distinct = torch.stack(results).flatten(0, 2).flatten(1).unique(dim=0)
    assert len(distinct) == 2 * 3 * 3 * 4


def test_nothing_waits_for_the_device() -> None:
    """On tensors without data, anything that has to look at a value, or mixes devices, fails."""
    with FakeTensorMode():
        images = torch.empty(2, 3, 3, 20, 20, dtype=torch.uint8, device="cuda")
        keys = episode_keys(0, "train", torch.arange(2, device="cuda"), AUGMENTATION)
        for recipe in (ALL, recipe_of(flip=True)):
            result = augment(images, keys, recipe, 20)
            assert (result.device.type, result.dtype) == ("cuda", torch.float32)


def test_half_the_images_are_exact_mirrors() -> None:
    images, keys = random_images(100, 20, 6, 6), keys_of(*range(100))
    mirrored = draw_choices(keys, 20).flip < 0.5
    expected = torch.where(mirrored[..., None, None, None], images.flip(-1), images).float()
    assert torch.equal(augment(images, keys, recipe_of(flip=True), 6), expected)
    assert abs(mirrored.float().mean().item() - 0.5) < 6 * 0.5 / 2000**0.5


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


def test_a_crop_enlarged_is_what_bilinear_sampling_gives_mirrored_or_not() -> None:
    images, keys = random_images(3, 4, 10, 14), keys_of(0, 1, 2)
    draws = draw_choices(keys, 4)
    mirrored = draws.flip.flatten() < 0.5
    assert 0 < mirrored.sum() < mirrored.numel()
    result = augment(images, keys, recipe_of(crop=0.5, flip=True), 24).flatten(0, 1)
    left, top, width, height = (each.flatten() for each in crop_boxes(draws, 0.5))
    zero = torch.zeros_like(width)
    across = torch.stack([width.where(~mirrored, -width), zero, 2 * left + width - 1], -1)
    down = torch.stack([zero, height, 2 * top + height - 1], -1)
    grid = F.affine_grid(torch.stack([across, down], 1), [12, 3, 24, 24], align_corners=False)
    pixels = images.flatten(0, 1).float()
    sampled = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    torch.testing.assert_close(result, sampled, atol=2e-2, rtol=0)


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
    result = augment(images, keys, recipe_of(jitter=jitter), 8)
    torch.testing.assert_close(result.double(), expected, atol=1e-3, rtol=0)


def luma(images: Tensor) -> Tensor:
    """Grey of ITU-R BT.601: [..., 3, h, w] -> [..., 3, h, w], three times the same."""
    red, green, blue = images.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3).expand_as(images)
