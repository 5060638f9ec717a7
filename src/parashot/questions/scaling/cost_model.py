"""The model of cost: what a step of p replicas takes, from what one replica and one link take.

A replica computes for `fixed + per_episode · n` seconds, `contention` times as long where others of its node
compute beside it and the slowest is waited for. Gradients of b bytes in m messages are summed by rings, first
within each node, then between nodes; a ring of p takes `2 (p - 1) (m · latency + b / p / bandwidth)`
(Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009; Thakur et al., IJHPCA 19, 2005). Of that time a
share is hidden behind computing, but never more than the backward pass lasts.

Every number may be an array, one value per resample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from parashot.questions.statistics import Floats

BACKWARD_SHARE = 2 / 3
"""Of a replica's computing: two products of matrices per layer in backward, one in forward (as Kaplan et al.
2020, arXiv 2001.08361, section 2.1, count)."""


@dataclass(frozen=True)
class Replica:
    """Seconds that one replica computes in a step."""

    fixed: Floats
    per_episode: Floats
    contention: Floats  # at least 1: times as long where other replicas of its node compute


@dataclass(frozen=True)
class Wire:
    """A link in one direction as a ring of messages sees it. A node has one, which its devices share."""

    name: str
    latency: Floats  # seconds of one hop
    seconds_per_byte: Floats

    @classmethod
    def fitted(cls, name: str, ranks: int, message_bytes: ArrayLike, seconds: ArrayLike) -> Wire:
        """Fit one to all-reduces over `ranks`: `seconds[..., i]` is what `message_bytes[i]` took."""
        once, per_byte = fit_line(message_bytes, seconds)
        hops = 2 * (ranks - 1)
        return cls(name, once / hops, per_byte * ranks / hops)

    def ring(self, ranks: int, size: float, messages: int = 1) -> Floats:
        """Seconds to sum `size` bytes over `ranks`, in `messages` parts; nothing for a lone one."""
        hops = 2 * (ranks - 1)
        return np.asarray(hops * (messages * self.latency + size / ranks * self.seconds_per_byte))


@dataclass(frozen=True)
class Cluster:
    """Replicas, one per device, and how they are joined; all nodes but the last are full."""

    replicas: int
    per_node: int
    within: Wire
    between: Wire


def predicted_seconds(
    replica: Replica, cluster: Cluster, episodes: int, size: float, messages: int, hidden: float
) -> Floats:
    """Seconds of a step in which the busiest replica has `episodes`.

    `size` and `messages` are the gradient's bytes and parts, `hidden` the share of the exchange, 0 to 1.
    """
    on_node, nodes = min(cluster.replicas, cluster.per_node), -(-cluster.replicas // cluster.per_node)
    computing = replica.fixed + replica.per_episode * episodes
    if on_node > 1:
        computing = computing * replica.contention
    exchange = cluster.within.ring(on_node, size, messages) + cluster.between.ring(nodes, size, messages)
    exposed = exchange - np.minimum(hidden * exchange, BACKWARD_SHARE * computing)
    return np.asarray(computing + exposed)


def fit_line(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Least squares of `y[..., i]` over `x[i]`: intercept and slope, neither below 0.

    Errors count relative to y, which must be positive: a message of 4 KiB says as much as one of 16 MiB.
    """
    from scipy.optimize import nnls  # a second to import, for predictions alone

    at, times = np.asarray(x, dtype=np.float64), np.atleast_2d(np.asarray(y, dtype=np.float64))
    design = np.stack([np.ones_like(at), at], axis=-1)
    fitted = np.array([nnls(design / each[:, None], np.ones_like(each))[0] for each in times])
    return fitted[:, 0], fitted[:, 1]
