"""Figures: drawn for every part, never blank, themed, repeatable."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import study_builder as build
from matplotlib import image
from matplotlib.container import ErrorbarContainer

from parashot.questions.results import StudyResults
from parashot.questions.study import Study, analyse
from parashot.report.canvas import LIGHT, Drawing, looks, png, svg
from parashot.report.figures import draw_figures, overview

NAMES = {"overview", "loader_speedup", "strategies_step", "batchsz", "curves_accuracy"}
ALL = ("serial", "dp", "ddp", "allreduce", "fsdp", "layer_split", "channel_split")


def drawn(results: StudyResults) -> dict[str, Drawing]:
    return draw_figures(analyse(results, build.params()))


@pytest.fixture(scope="module")
def drawings(study: Study) -> dict[str, Drawing]:
    return draw_figures(study)


@pytest.fixture(scope="module")
def crowded() -> dict[str, Drawing]:
    """As many series as there can be, with pretraining before them."""
    return drawn(
        build.study(
            strategies=build.strategy_results({name: 0.4 - 0.03 * place for place, name in enumerate(ALL)}),
            training={name: build.training(name) for name in ALL},
            pretraining=build.pretraining(),
            batchsz=build.batchsz_results({2: 0.05, 30: 0.0125, 60: 0.02}, stopped=(2, 60)),
        )
    )


def test_files_show_something_with_units(report: Path, drawings: dict[str, Drawing]) -> None:
    files = {path.stem: path for path in (report / "figures").glob("*.png")}
    assert set(files) == set(drawings) == NAMES
    for name, file in files.items():
        picture = image.imread(file)[..., :3]
        assert picture.shape[0] > 250 and picture.shape[1] > 600
        marked = np.mean(np.abs(picture - picture[0, 0]).max(axis=-1) > 0.2)
        assert 0.005 < marked < 0.9, f"{name} is blank or solid"
        axes = drawings[name].figure.axes[0]
        assert axes.get_xlabel() and (axes.get_ylabel() or axes.get_yticklabels())


def test_single_measurements_are_drawn_not_only_summaries(drawings: dict[str, Drawing]) -> None:
    for name, settings in {"strategies_step": 4, "loader_speedup": 10, "overview": 12}.items():
        lines = drawings[name].figure.axes[0].lines
        dots = [line for line in lines if line.get_linestyle() == "None" and line.get_alpha()]
        assert sum(len(np.asarray(line.get_xdata())) for line in dots) == settings * build.ROUNDS


def test_a_bar_is_as_long_as_its_step(drawings: dict[str, Drawing], study: Study) -> None:
    steps = [row.seconds_per_step.value for row in study.strategies.values() if row.seconds_per_step]
    axes = drawings["strategies_step"].figure.axes[0]
    ends: dict[int, float] = {}
    for bar in axes.patches:
        place = round(bar.get_y() + bar.get_height() / 2)  # type: ignore[attr-defined]
        ends[place] = max(ends.get(place, 0.0), bar.get_x() + bar.get_width())  # type: ignore[attr-defined]
    assert list(ends.values()) == pytest.approx(steps)


def test_the_study_s_curve_lies_beside_ours_and_the_overview_s_file_says_what_the_data_are(
    drawings: dict[str, Drawing], study: Study
) -> None:
    lines = {str(line.get_label()): line for line in drawings["loader_speedup"].figure.axes[0].lines}
    theirs = lines["the study (40 threads)"]
    points = dict(zip(np.asarray(theirs.get_xdata()), np.asarray(theirs.get_ydata()), strict=True))
    assert points[50 / 40] == 1.62
    picture = overview(study, wide=True)
    title = picture.figure.get_suptitle() if picture else ""
    assert "synthetic data" in title and "a short run" in title and "Test CPU" in title


def test_svg_is_bare_themed_repeatable_and_its_ids_its_own(
    drawings: dict[str, Drawing], study: Study
) -> None:
    for name, drawing in drawings.items():
        text = svg(drawing)
        assert "http" not in text and "<metadata" not in text and "<!DOCTYPE" not in text
        assert not re.search("|".join(LIGHT.values()), text) and "var(--ink)" in text
        ids = set(re.findall(r'\bid="([^"]+)"', text))
        assert all(each.startswith(f"{name}-") for each in ids)
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
    again = overview(study, wide=False)
    assert again and svg(again) == svg(drawings["overview"]) and png(again) == png(drawings["overview"])


def test_more_strategies_than_colours_are_all_drawn_from_where_pretraining_ends(
    crowded: dict[str, Drawing],
) -> None:
    assert len({*looks(20)}) == 20
    series = crowded["curves_accuracy"].figure.axes[0].containers
    lines = {each.get_label(): each.lines[0] for each in series if isinstance(each, ErrorbarContainer)}
    assert lines.keys() >= set(ALL)
    begins = {label: np.asarray(line.get_xdata())[0] for label, line in lines.items()}
    assert begins["pretraining"] < 30.0 < begins["serial"] == 30.0 + 21.0 / 4


def test_no_legend_is_cut_off(crowded: dict[str, Drawing]) -> None:
    legends = {name: each.figure.legends[0] for name, each in crowded.items() if each.figure.legends}
    assert set(legends) == NAMES - {"overview"}
    for name, legend in legends.items():
        figure = crowded[name].figure
        figure.draw_without_rendering()
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, name


def test_figures_without_data_are_left_out() -> None:
    assert drawn(StudyResults()) == {}
    loader = StudyResults(hardware=build.HARDWARE, loader=build.loader_results())
    assert list(drawn(loader)) == ["overview", "loader_speedup"]
    few = build.loader_results({"jpeg": {1: 0.2, 2: 0.1}}, loading={("jpeg", 2): 0.2})
    assert drawn(replace(loader, loader=few)) == {}
