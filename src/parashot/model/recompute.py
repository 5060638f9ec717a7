"""Gradient checkpointing: a block forgets what lies inside it and computes it again during backward.

Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016. Same gradients, less memory, more time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Recomputable(nn.Module):
    """A module whose inside is not kept for backward where `recompute` is true; `keep_less` sets it."""

    recompute = False

    def recomputed(self, function: Callable[..., Tensor], *maps: Tensor) -> Tensor:
        """Call `function(*maps)`, a part of this module, and keep only `maps` for backward, if told so."""
        if not (self.recompute and self.training and torch.is_grad_enabled()):
            return function(*maps)

        result: Tensor = checkpoint(
            function,
            *maps,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=lambda: (nullcontext(), _on_copied_statistics(self)),
        )
        return result


def keep_less(network: nn.Module) -> None:
    """Let all blocks of `network` compute their inside again during backward."""
    for module in network.modules():
        if isinstance(module, Recomputable):
            module.recompute = True


@contextmanager
def _on_copied_statistics(module: nn.Module) -> Iterator[None]:
    """Within it, batch norms move copies of their running statistics: the first pass has moved them once."""
    buffers = [(each, *item) for each in module.modules() for item in each.named_buffers(recurse=False)]
    for owner, name, value in buffers:
        setattr(owner, name, value.clone())
    try:
        yield
    finally:
        for owner, name, value in buffers:
            setattr(owner, name, value)
