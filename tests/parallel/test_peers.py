"""Who is silent, is named by all others, also where it is the first rank."""

from __future__ import annotations

from datetime import timedelta

import pytest
from standing_ranks import StandingRanks
from torch import distributed as dist

from parashot.parallel import peers
from parashot.parallel.context import Context, control_group


def who_is_silent(context: Context, absent: int) -> list[list[int]]:
    """What each of the ranks that answer says."""
    control = control_group(context)
    assert control is not None
    said = None
    if context.rank != absent:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peers, "_ROLL_CALL", timedelta(seconds=1))
            said = peers._silent_ranks(context, control)
    everyone: list[list[int] | None] = [None] * context.ranks
    dist.all_gather_object(everyone, said)
    return [each for each in everyone if each is not None]


@pytest.mark.parametrize(("absent", "silent"), [(0, [0]), (1, [1]), (2, [2]), (3, [])])
def test_a_silent_rank_is_named_by_all_others(ranks: StandingRanks, absent: int, silent: list[int]) -> None:
    said = ranks(3, who_is_silent, absent)
    assert said == [silent] * (3 if absent == 3 else 2)
