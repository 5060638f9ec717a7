"""Replacement of `auto` in params by what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from parashot.params import Compile, Pairing, Params, Precision
from parashot.train.records import Choices


def resolve_auto(params: Params, choices: Choices) -> Params:
    """Replace every `auto` of the step by `choices`."""
    pairing, precision, mode = params.model.pairing, params.train.precision, params.train.compile
    return computed_as(
        params,
        Choices(
            choices.pairing if pairing == "auto" else pairing,
            choices.precision if precision == "auto" else precision,
            choices.compile if mode == "auto" else mode,
        ),
    )


def computed_as(params: Params, choices: Choices) -> Params:
    """Let steps be computed in the way of `choices`, whatever params ask for."""
    return replace(
        params,
        model=replace(params.model, pairing=cast("Pairing", choices.pairing)),
        train=replace(
            params.train,
            precision=cast("Precision", choices.precision),
            compile=cast("Compile", choices.compile),
        ),
    )
