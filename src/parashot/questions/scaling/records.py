"""Records that the cost model is fitted to, in results/strategies."""

from __future__ import annotations

from parashot.records import record


@record
class CostStep:
    """One timed block of steps of one replica that exchanges nothing: what the model of cost is fitted to."""

    round: int
    busy: int  # replicas that computed meanwhile, this one among them
    episodes: int  # per step of this replica
    steps: int
    seconds: float  # of the slowest of those


@record
class CostMessage:
    """One timed block of all-reduces of one message: what a link is fitted to."""

    round: int
    ranks: int
    bytes: int  # of one message
    calls: int
    seconds: float
