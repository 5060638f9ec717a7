"""Links between devices: what one carries, and what one hop of a message takes, each with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass

from parashot.errors import UsageError

HERE = "here"
"""The link that was measured on this machine."""


@dataclass(frozen=True)
class Link:
    """A link in one direction. A node has one, which its devices share."""

    name: str
    gb_per_second: float  # 10^9 bytes per second
    latency_us: float  # of one hop of a ring


LINKS = {
    link.name: link
    for link in (
        Link("ethernet-1g", 0.125, 20),
        Link("ethernet-10g", 1.25, 20),
        Link("ethernet-25g", 3.125, 20),
        Link("ethernet-100g", 12.5, 20),
        Link("infiniband-hdr", 25, 14),
        Link("pcie3", 15.75, 5.7),
        Link("pcie4", 31.5, 5.7),
        Link("nvlink1", 80, 3.4),
        Link("nvlink2", 150, 3.4),
        Link("nvlink3", 300, 3.4),
        Link("nvlink4", 450, 3.4),
    )
}
"""Bandwidth is the rate of the standard or the data sheet, which no program quite reaches: Ethernet by its
name (IEEE 802.3), InfiniBand HDR 200 Gbit/s (IBTA), PCIe 16 lanes of 8 or 16 GT/s in 128b/130b (PCI-SIG),
NVLink half of NVIDIA's figure for both directions: P100 160, V100 300, A100 600, H100 900 GB/s.

Latency on GPUs is what NCCL itself reckons with for a hop of a ring (hwLat in src/graph/tuning.cc of
NVIDIA/nccl, protocol Simple): NVLink 3.4, PCIe 5.7, network 14 µs. Ethernet has the 20 µs from application
to application that Hurwitz and Feng measured with TCP on 10 Gbit Ethernet (Hot Interconnects 2003), at every
rate: most of it is software.
"""


def parse_link(text: str) -> Link:
    """Look up a link by name, or make one of `GB/s,latency in µs`. Raises `UsageError`."""
    if text in LINKS:
        return LINKS[text]
    try:
        bandwidth, latency = (float(each) for each in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"link {text!r} is unknown; choose one of {', '.join((HERE, *LINKS))}, or give "
            "GB/s,latency in µs such as 12.5,20"
        ) from error
    if not (bandwidth > 0 and math.isfinite(latency) and latency >= 0):
        raise UsageError(f"link {text!r}: GB/s must be above 0, and the latency 0 µs or more")
    return Link(f"{bandwidth:g} GB/s, {latency:g} µs", bandwidth, latency)
