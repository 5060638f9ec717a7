"""Figures: drawn for every part, never blank, themed, repeatable."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import study_builder as build
from matplotlib import image

from parashot.questions.results import StudyResults
from parashot.questions.summary import summarize
from parashot.report.canvas import Drawing, png, svg
from parashot.report.figures import draw_figures
from parashot.report.figures_overview import overview
from parashot.report.palette import DARK, LIGHT, looks
from parashot.report.style import EXTRA_DARK, EXTRA_LIGHT

NAMES = [
    "loader_speedup",
    "loader_efficiency",
    "loader_rate",
    "loader_memory",
    "strategies_step",
    "accuracy",
    "accuracy_difference",
    "strategies_shares",
    "scaling",
    "batchsz_time",
    "batchsz_accuracy",
    "batchsz_communication",
    "curves_loss",
    "accuracy_episodes",
    "curves_accuracy",
    "episode_0",
    "episode_1",
    "confusion",
]


def drawn(results: StudyResults) -> dict[str, Drawing]:
    summary = summarize(results, build.params())
    found = draw_figures(summary, results)
    picture = overview(summary, results, wide=True)
    return found | ({"overview": picture} if picture else {})


@pytest.fixture(scope="module")
def drawings() -> dict[str, Drawing]:
    return drawn(build.study())


def pixels(drawing: Drawing) -> np.ndarray:
    loaded: np.ndarray = image.imread(io.BytesIO(png(drawing)), format="png")
    return loaded


def test_every_part_has_its_figures(drawings: dict[str, Drawing]) -> None:
    assert list(drawings) == [*NAMES, "overview"]


@pytest.mark.parametrize("name", [*NAMES, "overview"])
def test_figures_show_something_with_units(drawings: dict[str, Drawing], name: str) -> None:
    drawing = drawings[name]
    picture = pixels(drawing)[..., :3]
    assert picture.shape[0] > 250 and picture.shape[1] > 600
    assert 0.005 < np.mean(np.abs(picture - picture[0, 0]).max(axis=-1) > 0.2) < 0.9, "not blank, not solid"
    axes = drawing.figure.axes[0]
    assert axes.get_xlabel() and (axes.get_ylabel() or axes.get_yticklabels())
    assert drawing.alt.endswith(".") and drawing.caption.endswith(".")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("strategies_step", 4),
        ("loader_speedup", 10),
        ("loader_rate", 10),
        ("batchsz_time", 3),
        ("overview", 12),
    ],
)
def test_single_measurements_are_drawn_not_only_summaries(
    drawings: dict[str, Drawing], name: str, settings: int
) -> None:
    lines = drawings[name].figure.axes[0].lines
    dots = [line for line in lines if line.get_linestyle() == "None" and line.get_alpha()]
    assert sum(len(np.asarray(line.get_xdata())) for line in dots) == settings * build.ROUNDS


def test_stopped_sizes_are_hatched_to_their_projection(drawings: dict[str, Drawing]) -> None:
    bars = [patch for patch in drawings["batchsz_time"].figure.axes[0].patches if patch.get_hatch()]
    assert [round(bar.get_y() + bar.get_height(), 6) for bar in bars] == [30.0]  # type: ignore[attr-defined]


def test_the_study_s_curve_lies_beside_ours(drawings: dict[str, Drawing]) -> None:
    for name, value in (("loader_speedup", 1.62), ("loader_efficiency", 0.0325)):
        labelled = {str(line.get_label()): line for line in drawings[name].figure.axes[0].lines}
        study = labelled["the study (40 threads)"]
        points = dict(zip(np.asarray(study.get_xdata()), np.asarray(study.get_ydata()), strict=True))
        assert points[50 / 40] == value


def test_overview_says_what_the_data_are(drawings: dict[str, Drawing]) -> None:
    title: Any = drawings["overview"].figure.get_suptitle()
    assert "synthetic data" in title and "a short run" in title


def test_svg_is_bare_themed_and_its_ids_its_own(drawings: dict[str, Drawing]) -> None:
    for name, drawing in drawings.items():
        text = svg(drawing)
        assert "http" not in text and "<metadata" not in text and "<!DOCTYPE" not in text
        assert not re.search("|".join(LIGHT.values()), text) and "var(--ink)" in text
        assert all(each.startswith(f"{name}-") for each in re.findall(r'\bid="([^"]+)"', text))
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(re.findall(r'\bid="([^"]+)"', text))


def test_the_same_study_gives_the_same_picture() -> None:
    first, second = (
        overview(summarize(build.study(), build.params()), build.study(), wide=False) for _ in range(2)
    )
    assert first and second and svg(first) == svg(second) and png(first) == png(second)


ALL = ("serial", "dp", "ddp", "allreduce", "fsdp", "layer_split", "channel_split")


def study_of_all_strategies() -> StudyResults:
    return build.study(
        strategies=build.strategy_results({name: 0.4 - 0.03 * place for place, name in enumerate(ALL)}),
        training={name: build.training(name) for name in ALL},
    )


def test_more_strategies_than_colours_are_all_drawn() -> None:
    found = drawn(study_of_all_strategies())
    labels = {line.get_label() for line in found["curves_loss"].figure.axes[0].lines}
    assert set(ALL) <= labels
    assert len({(look.colour, look.marker, look.line) for look in looks(20)}) == 20


def test_no_legend_is_wider_than_its_figure() -> None:
    stopped = build.batchsz_results({2: 0.05, 30: 0.0125, 60: 0.02}, stopped=(2, 60))
    full = replace(study_of_all_strategies(), batchsz=stopped)
    legends = {
        name: (drawing.figure, legend)
        for name, drawing in drawn(full).items()
        for legend in [*drawing.figure.legends, *(axes.get_legend() for axes in drawing.figure.axes)]
        if legend is not None
    }
    assert len(legends) > 5
    for name, (figure, legend) in legends.items():
        figure.draw_without_rendering()
        assert figure.bbox.x0 <= legend.get_window_extent().x0, name
        assert legend.get_window_extent().x1 <= figure.bbox.x1, name


def test_figures_without_data_are_left_out() -> None:
    assert drawn(StudyResults()) == {}
    only_loader = drawn(StudyResults(hardware=build.HARDWARE, loader=build.loader_results()))
    assert list(only_loader) == [*NAMES[:4], "overview"]
    without_base = build.loader_results({"jpeg": {1: 0.2, 2: 0.1}})
    found = drawn(StudyResults(hardware=build.HARDWARE, loader=without_base))
    assert list(found) == ["loader_rate", "loader_memory"]


def contrast(first: str, second: str) -> float:
    """Contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT | EXTRA_LIGHT, DARK | EXTRA_DARK], ids=["light", "dark"])
def test_colours_can_be_read_in_both_themes(theme: dict[str, str]) -> None:
    for ground in ("paper", "tint"):
        for text in ("ink", "muted", "blue", "yes", "no"):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
    for series in ("blue", "vermillion", "green", "purple"):
        assert contrast(theme[series], theme["paper"]) >= 3, series


@pytest.mark.parametrize("score", [float("nan"), 0.0])
def test_an_episode_of_a_network_that_diverged_can_be_drawn(score: float) -> None:
    shown = build.shown_episode(0)
    broken = replace(shown, scores=tuple(replace(each, score=score) for each in shown.scores))
    evaluation = replace(build.evaluation(), shown=(broken,))
    assert pixels(drawn(build.study(evaluate=evaluation))["episode_0"]).size
