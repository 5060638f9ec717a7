"""Records of the step question: results/tune."""

from __future__ import annotations

from parashot.records import record


@record
class TuneBlock:
    """One timed step of one replica, computed in one way, in one round."""

    round: int
    pairing: str
    precision: str
    compile: str
    seconds: float
