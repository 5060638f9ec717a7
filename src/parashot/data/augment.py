"""Augmentation where the images are: random resized crop, horizontal flip, colour jitter.

The change of image p of episode i is a pure function of (seed, split, i, p), by the hash that draws the
episodes: the same for every strategy, world size, batch and device. (torchvision draws from a generator, one
image after another.) Nothing here waits for the device, and nothing loops over images.

    b episodes · m images of each · h, w stored pixels · size pixels asked for

Crop, flip and resize are one step: an image is multiplied from the left and from the right by the weights of
a triangle filter (as in Pillow's resize). Where pixels are reduced the filter widens, so that nothing aliases
whatever the crop; the whole image gives what `pixels.resize` makes of it. Sampling bilinearly at one point
per pixel takes as long on two cores, and aliases.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from parashot.data.episodes import uniforms
from parashot.params import AugmentParams

_LOG_ASPECT = math.log(4 / 3)


class Draws(NamedTuple):
    """One number of [0, 1) per image for each choice, float32 [b, m].

    All are drawn whether used or not, so turning one knob leaves what the others do.
    """

    flip: Tensor
    area: Tensor
    aspect: Tensor
    left: Tensor
    top: Tensor
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor


class Crops(NamedTuple):
    """Rectangles as shares of the image's width and height, each [...]."""

    left: Tensor
    top: Tensor
    width: Tensor
    height: Tensor


def augment(images: Tensor, keys: Tensor, recipe: AugmentParams, size: int) -> Tensor:
    """Crop, flip, resize and jitter each image by itself.

    images [b, m, 3, h, w]: pixels of 0..255, uint8 or floating, in any memory order; keys: int64 [b], of
    `episode_keys`, on the same device. Pass support and query of an episode together, as its images
    0..m - 1: passed one by one, both would change alike.
    Returns float32 [b, m, 3, size, size], pixels of 0..255, stored channels last.
    """
    draws = Draws(*(each.flatten() for each in draw_choices(keys, images.shape[1])))
    pixels = _place(images.flatten(0, 1), draws, recipe, size)
    if recipe.jitter:
        pixels = _jitter(pixels, draws, recipe.jitter)
    return pixels.contiguous(memory_format=torch.channels_last).view(*images.shape[:2], 3, size, size)


def draw_choices(keys: Tensor, m: int) -> Draws:
    """Draw the choices for m images of each episode: int64 [b] -> [b, m] each."""
    choices = len(Draws._fields)
    return Draws(*uniforms(keys, m * choices).view(-1, m, choices).unbind(-1))


def crop_boxes(draws: Draws, crop: float) -> Crops:
    """Choose rectangles that lie in the image: draws [...] -> shares of its sides [...].

    The area is uniform in [crop, 1]; the aspect ratio, relative to the image's own, log-uniform in the part
    of [3/4, 4/3] in which that area fits; the position uniform. The choices are those of torchvision's
    RandomResizedCrop, which draws again what does not fit and so keeps fewer large crops.
    """
    log_area = (crop + (1 - crop) * draws.area).log()
    log_aspect = (2 * draws.aspect - 1) * (-log_area).clamp_max(_LOG_ASPECT)
    width, height = ((log_area + log_aspect) / 2).exp(), ((log_area - log_aspect) / 2).exp()
    return Crops(draws.left * (1 - width), draws.top * (1 - height), width, height)


def _place(images: Tensor, draws: Draws, recipe: AugmentParams, size: int) -> Tensor:
    """Crop, flip and resize: [n, 3, h, w], draws [n] -> float32 [n, 3, size, size] in any memory order."""
    mirrored = draws.flip < (0.5 if recipe.flip else 0.0)
    if recipe.crop < 1 or images.shape[-2:] != (size, size):
        return _resample(images, crop_boxes(draws, recipe.crop), mirrored, size)
    if recipe.flip:
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    return images.float()


def _resample(images: Tensor, crops: Crops, mirrored: Tensor, size: int) -> Tensor:
    """Bring rectangles of images [n, 3, h, w] to [n, 3, size, size], mirrored ones read from the right."""
    n, _, h, w = images.shape
    left = torch.where(mirrored, crops.left + crops.width, crops.left)
    width = torch.where(mirrored, -crops.width, crops.width)
    # rows outermost, then channels: so both products are plain ones, over all channels at once
    lines = images.movedim(1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    with torch.autocast(images.device.type, enabled=False):  # half precision would round the pixels
        lines = torch.bmm(_filter(crops.top, crops.height, h, size), lines.reshape(n, h, 3 * w))
        lines = torch.bmm(lines.view(n, size * 3, w), _filter(left, width, w, size).mT)
    return lines.view(n, size, 3, size).movedim(2, 1)


def _filter(start: Tensor, extent: Tensor, pixels: int, size: int) -> Tensor:
    """Weights that bring a stretch of a line of `pixels` to `size`: [n, size, pixels], each row's sum 1.

    start and extent [n]: shares of the line; a negative extent runs backwards. The triangle reaches as far as
    the output pixel is wide, at least to the next stored pixel, as in linear interpolation.
    """
    steps = (torch.arange(size, device=start.device) + 0.5) / size
    centres = (start[:, None] + extent[:, None] * steps) * pixels
    reach = (extent.abs() * (pixels / size)).clamp_min(1)
    distances = torch.arange(pixels, device=start.device) + 0.5 - centres[..., None]
    weights = distances.abs_().div_(-reach[:, None, None]).add_(1).clamp_min_(0)
    return weights.div_(weights.sum(-1, keepdim=True))


def _jitter(pixels: Tensor, draws: Draws, jitter: float) -> Tensor:
    """Scale brightness, then contrast around the image's mean grey, then saturation around the pixel's grey.

    pixels: float32 [n, 3, h, w], draws [n]. The three are linear, so one sum of the pixel, its grey and the
    mean grey is all of them; only that sum is cut off to 0..255.
    """
    brightness, contrast, saturation = (
        (1 + jitter * (2 * draw - 1))[:, None, None]  # from [0, 1) to within 1 ± jitter
        for draw in (draws.brightness, draws.contrast, draws.saturation)
    )
    gain = brightness * contrast
    red, green, blue = pixels.unbind(1)
    grey = (red * 0.299).add_(green, alpha=0.587).add_(blue, alpha=0.114)  # luma of ITU-R BT.601
    mean = grey.mean((-2, -1), keepdim=True)
    shared = grey.mul_(gain * (1 - saturation)).add_(mean * (brightness * (1 - contrast)))
    return (pixels * (gain * saturation)[:, None]).add_(shared[:, None]).clamp_(0, 255)
