"""Published scalings, predicted from their own stated figures and set beside what was measured there.

Nothing is tuned: the compute time, the gradient and the links are those of the source, the latencies those of
`links`. How much of an exchange was hidden is not stated, so the prediction counts none as hidden, and its
interval reaches down to all that the backward pass can hide.
"""

from __future__ import annotations

from dataclasses import dataclass

from parashot.questions.scaling.cost_model import BACKWARD_SHARE, Cluster, Wire, exposed
from parashot.questions.scaling.links import LINKS, Link
from parashot.questions.statistics import Interval

RESNET50_BYTES = 4 * 25_557_032
"""Parameters of torchvision's ResNet-50 in fp32."""


@dataclass(frozen=True)
class Published:
    """One measurement: a step on `devices`, and the one on `base_devices` that it is predicted from."""

    study: str
    source: str
    base_devices: int
    devices: int
    per_node: int
    within: Link
    between: Link
    gradient_bytes: float
    messages: int
    base_seconds: float
    backward_seconds: float  # of a replica's step
    measured_seconds: float


@dataclass(frozen=True)
class PublishedRow:
    """The prediction beside the truth."""

    study: str
    devices: int
    nodes: int
    link: str  # between nodes, or within the only one
    base_devices: int
    base_seconds: float
    predicted: Interval  # seconds per step
    measured: float
    error: float  # predicted / measured - 1
    source: str


def _pytorch(devices: int, images_per_second: float) -> Published:
    """PyTorch's own benchmark of DDP: ResNet-50, 32 images per GPU, fp32, DGX with 8 V100s.

    README of benchmarks/distributed/ddp in pytorch/pytorch (torch 1.4): per GPU 319 images/s under DDP on one
    GPU, 307 on 8, 306 on 16; machines are joined by four InfiniBand links of 100 Gbit/s. DDP's buckets: one
    of 1 MiB, then 25 MiB each.
    """
    base = 32 / 319
    return Published(
        study="ResNet-50 under DDP, V100",
        source="pytorch/pytorch, benchmarks/distributed/ddp/README.md",
        base_devices=1,
        devices=devices,
        per_node=8,
        within=LINKS["nvlink2"],
        between=Link("4 × InfiniBand EDR", 4 * 12.5, LINKS["infiniband-hdr"].latency_us),
        gradient_bytes=RESNET50_BYTES,
        messages=5,
        base_seconds=base,
        backward_seconds=BACKWARD_SHARE * base,
        measured_seconds=32 / images_per_second,
    )


def _goyal() -> Published:
    """Goyal et al. 2017 (arXiv 1706.02677): ResNet-50, 32 images per GPU, 8 P100s per server, Caffe2.

    The paper: a gradient of 100 MB, 0.12 s for the backward pass, 50 Gbit Ethernet between servers, about 90%
    of ideal from 8 to 256 GPUs. 29 hours for 90 epochs of 1,281,167 images on 8 GPUs (NVIDIA's developer news
    of 8 June 2017) are 0.23 s a step.
    """
    base = 29 * 3600 / (90 * 1_281_167 / 256)
    return Published(
        study="ResNet-50 in Caffe2, P100",
        source="Goyal et al. 2017, arXiv 1706.02677",
        base_devices=8,
        devices=256,
        per_node=8,
        within=LINKS["nvlink1"],
        between=Link("50 Gbit Ethernet", 6.25, LINKS["ethernet-10g"].latency_us),
        gradient_bytes=100e6,
        messages=1,
        base_seconds=base,
        backward_seconds=0.12,
        measured_seconds=base / 0.9,
    )


PUBLISHED = (_pytorch(8, 307), _pytorch(16, 306), _goyal())


def published_rows() -> list[PublishedRow]:
    """Predict each of them."""
    return [_row(each) for each in PUBLISHED]


def _row(known: Published) -> PublishedRow:
    within, between = Wire.of(known.within), Wire.of(known.between)
    base, there = (
        Cluster(count, known.per_node, within, between) for count in (known.base_devices, known.devices)
    )
    added = there.exchange(known.gradient_bytes, known.messages) - base.exchange(
        known.gradient_bytes, known.messages
    )
    most, least = (
        known.base_seconds + float(exposed(added, hidden, known.backward_seconds)) for hidden in (0.0, 1.0)
    )
    return PublishedRow(
        study=known.study,
        devices=known.devices,
        nodes=there.nodes,
        link=(known.between if there.nodes > 1 else known.within).name,
        base_devices=known.base_devices,
        base_seconds=known.base_seconds,
        predicted=Interval(most, least, most),
        measured=known.measured_seconds,
        error=most / known.measured_seconds - 1,
        source=known.source,
    )
