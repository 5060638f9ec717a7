"""Colours of figures: Okabe and Ito's, told apart with every kind of colour vision.

A figure is drawn with the light colours; in the page each becomes the CSS variable of the same name in
style.css, so that it follows the reader's light or dark theme.
"""

from __future__ import annotations

from dataclasses import dataclass

LIGHT = {
    "ink": "#1c2126",
    "muted": "#5b646e",
    "line": "#d5dae0",
    "paper": "#fefefe",
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#b0568a",
}
SERIES = ("blue", "vermillion", "green", "purple")
"""Colours of data; purple is darkened on white, for contrast."""


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one series: told apart also without colour."""

    colour: str
    marker: str
    line: str


def looks(count: int) -> list[Look]:
    """Looks for `count` series; any 20 differ."""
    markers, lines = ("o", "s", "^", "D", "v"), ("-", "--", ":", "-.")
    return [Look(SERIES[i % 4], markers[i % 5], lines[(i + i // 4) % 4]) for i in range(count)]
