"""params.yaml with what it leaves to `auto` settled by stage `tune`."""

from __future__ import annotations

from parashot.params import Params
from parashot.records import read_result
from parashot.train.choices import settle
from parashot.train.records import Choices
from stages.common import RESULTS, params

CHOICES = RESULTS / "choices.json"
PRETRAINED = RESULTS / "embedding.pt"


def settled_params() -> Params:
    """What every stage that trains computes with."""
    return settle(params(), read_result(Choices, CHOICES))
