"""What a strategy pays for its speed: bytes on their way, and how the time of a step is shared out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from parashot.questions.statistics import Interval, Resampling, median_interval
from parashot.questions.strategies.records import StepAnatomy, StepShares
from parashot.questions.text import listed, percent, size

WORTH_NAMING = 0.05
"""Share of a step below which nothing is said of it."""


@dataclass(frozen=True)
class StepCost:
    """One variant; shares are means over its processes and profiled steps, None where none was profiled."""

    bytes_sent: int | None = None
    processes: int | None = None
    communication_exposed: float | None = None
    communication_hidden: float | None = None
    idle: float | None = None

    def why_slow(self) -> str:
        """Where the time of a step goes that computes nothing, or an empty text where that is not known."""
        if self.communication_exposed is None or self.idle is None:
            return ""
        shares = ((self.communication_exposed, "in messages not hidden"), (self.idle, "idle"))
        named = [f"{percent(share)} {what}" for share, what in shares if share > WORTH_NAMING]
        sent = f", {size(self.bytes_sent)} sent per process" if self.bytes_sent else ""
        if not named:
            return f"the processes compute nearly all of the time{sent}: what they compute takes longer"
        return f"of a step, {listed(named)}{sent}"


def step_cost(variant: str, anatomy: Iterable[StepAnatomy], shares: Iterable[StepShares]) -> StepCost:
    """Put together what was seen of a variant."""
    seen = next((each for each in anatomy if each.variant == variant), None)
    mine = [each for each in shares if each.variant == variant]
    return StepCost(
        bytes_sent=seen.bytes_sent if seen else None,
        processes=seen.processes if seen else None,
        communication_exposed=fmean(each.exposed for each in mine) if mine else None,
        communication_hidden=fmean(each.hidden for each in mine) if mine else None,
        idle=fmean(each.idle for each in mine) if mine else None,
    )


def hidden_share(variant: str, shares: Sequence[StepShares], resampling: Resampling) -> Interval | None:
    """Of the time that messages of a variant were under way, the share in which its processes computed.

    One value per profiled step, the mean over processes; None where no messages were seen.
    """
    steps: dict[int, list[StepShares]] = {}
    for each in shares:
        if each.variant == variant:
            steps.setdefault(each.step, []).append(each)
    values = [
        sum(each.hidden for each in ranks) / under_way
        for ranks in steps.values()
        if (under_way := sum(each.hidden + each.exposed for each in ranks)) > 0
    ]
    return median_interval(values, resampling) if len(values) > 1 else None
