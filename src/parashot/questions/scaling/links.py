"""Links between devices: what one carries, and what one hop of a message takes, each with its source."""

from __future__ import annotations

import math

import numpy as np

from parashot.errors import UsageError
from parashot.questions.scaling.cost_model import Wire

HERE = "here"
"""The link that was measured on this machine."""


def link(name: str, gb_per_second: float, latency_us: float) -> Wire:
    """Make a link of its data in one direction: 10^9 bytes per second, and µs of one hop of a ring."""
    return Wire(name, np.asarray(1e-6 * latency_us), np.asarray(1e-9 / gb_per_second))


LINKS = {
    each.name: each
    for each in (
        link("ethernet-1g", 0.125, 20),
        link("ethernet-10g", 1.25, 20),
        link("ethernet-25g", 3.125, 20),
        link("ethernet-100g", 12.5, 20),
        link("infiniband-hdr", 25, 14),
        link("pcie3", 15.75, 5.7),
        link("pcie4", 31.5, 5.7),
        link("nvlink1", 80, 3.4),
        link("nvlink2", 150, 3.4),
        link("nvlink3", 300, 3.4),
        link("nvlink4", 450, 3.4),
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


def parse_link(text: str) -> Wire:
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
    return link(f"{bandwidth:g} GB/s, {latency:g} µs", bandwidth, latency)
