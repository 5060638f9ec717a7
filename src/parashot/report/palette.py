"""Colours of figures and page: Okabe and Ito's, told apart with every kind of colour vision.

A figure is drawn with the light colours; in the page each becomes a CSS variable of the same name, so that it
follows the reader's light or dark theme.
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
DARK = {
    "ink": "#e7eaee",
    "muted": "#a3adb8",
    "line": "#38414b",
    "paper": "#14181d",
    "blue": "#56b4e9",
    "vermillion": "#e69f00",
    "green": "#009e73",
    "purple": "#cc79a7",
}
SERIES = ("blue", "vermillion", "green", "purple")
"""What data are drawn in; purple is darkened on white, for contrast."""


@dataclass(frozen=True)
class Look:
    """How one series is told from the others, in colour and without: any 20 differ."""

    colour: str
    marker: str
    line: str


def looks(count: int) -> list[Look]:
    """Looks for `count` series."""
    markers, lines = ("o", "s", "^", "D", "v"), ("-", "--", ":", "-.")
    return [Look(SERIES[i % 4], markers[i % 5], lines[(i + i // 4) % 4]) for i in range(count)]


def css_variables(colours: dict[str, str]) -> str:
    """CSS declarations of a theme."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def themed(svg: str) -> str:
    """Replace each light colour of a figure by its CSS variable."""
    for name, value in LIGHT.items():
        svg = svg.replace(value, f"var(--{name})")
    return svg
