"""The chosen model on unseen classes: what episodes look like, and what is mistaken for what."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from PIL import Image

from parashot.plain import printable
from parashot.questions.accuracy.records import Confusion
from parashot.questions.results import Evaluation, ShownEpisode, StudyResults
from parashot.questions.text import counted, percent
from parashot.report.canvas import Drawing, new_axes, styled
from parashot.report.palette import LIGHT

_MOST_LABELS = 30
"""More classes than these are too many to name beside the figure."""

_TILE = 0.9
"""Side of an image where a cell is 1."""


def evaluation_drawings(results: StudyResults) -> list[Drawing]:
    """Draw what the chosen model makes of the test split."""
    evaluation = results.evaluate
    if evaluation is None:
        return []
    episodes = [_episode(number, each) for number, each in enumerate(evaluation.shown)]
    return [*episodes, *([_confusion(evaluation)] if evaluation.confusion else [])]


@styled
def _episode(number: int, episode: ShownEpisode) -> Drawing:
    first = episode.scores[0]
    queries = sorted({(each.actual, each.query) for each in episode.scores})
    scores = {(each.actual, each.query, each.offered): each.score for each in episode.scores}
    tiles = _tiles(episode)
    figure, axes = new_axes(1.1 + 0.42 * (len(queries) + 1))
    for offered in range(first.n_way):
        _show(axes, tiles[offered, 0], offered + 1, 0)
    right, top = 0, max([each for each in scores.values() if np.isfinite(each)], default=0.0)
    for line, (actual, query) in enumerate(queries, start=1):
        _show(axes, tiles[actual, first.k_shot + query], 0, line)
        row = [scores[actual, query, offered] for offered in range(first.n_way)]
        best = int(np.argmax(row))
        right += best == actual
        for offered, score in enumerate(row):
            darkness = score / top if top > 0 and np.isfinite(score) else 0.0
            _score(axes, offered + 1, line, score, darkness, own=offered == actual, best=offered == best)
    axes.set_xlim(-0.55, first.n_way + 0.55)
    axes.set_ylim(len(queries) + 0.55, -0.55)
    axes.set_xticks(range(1, first.n_way + 1), [f"class {each + 1}" for each in range(first.n_way)])
    axes.xaxis.tick_top()
    axes.set_xlabel("relation score of a query with each class")
    axes.set_yticks([0, (len(queries) + 1) / 2], ["support", "queries"], rotation=90, va="center")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    shots = "" if first.k_shot == 1 else f" (the first of {first.k_shot} of each class is shown)"
    return Drawing(
        f"episode_{number}",
        f"Episode {number} of the test split",
        f"An episode as a table: {first.n_way} classes with a support image each, {len(queries)} queries "
        f"and their relation score with every class; {right} of {counted(len(queries), 'query', 'queries')} "
        "score highest with their own class.",
        f"Above a support image of each class{shots}, at the left queries, between them relation scores "
        "from 0 to 1, the darker the higher among these. Outlined is a query's own class, bold the class it "
        "is taken for. The first episodes are shown, not chosen ones.",
        figure,
    )


def _tiles(episode: ShownEpisode) -> npt.NDArray[np.uint8]:
    """Images [n_way, support and queries, side, side, 3]."""
    mosaic = np.asarray(Image.open(io.BytesIO(episode.images)).convert("RGB"))
    n_way = episode.scores[0].n_way
    side = mosaic.shape[0] // n_way
    return mosaic.reshape(n_way, side, -1, side, 3).transpose(0, 2, 1, 3, 4)


def _show(axes: Axes, tile: npt.NDArray[np.uint8], x: float, y: float) -> None:
    half = _TILE / 2
    axes.imshow(tile, extent=(x - half, x + half, y + half, y - half), interpolation="bilinear", zorder=2)


def _score(axes: Axes, x: float, y: float, score: float, darkness: float, *, own: bool, best: bool) -> None:
    half = _TILE / 2
    fill = to_rgba(LIGHT["blue"], 0.55 * darkness)
    edge = LIGHT["ink"] if own else "none"
    axes.add_patch(
        Rectangle((x - half, y - half), _TILE, _TILE, facecolor=fill, edgecolor=edge, linewidth=1.4)
    )
    axes.text(
        x, y, f"{score:.2f}", ha="center", va="center", fontweight="bold" if best else "normal", zorder=3
    )


@styled
def _confusion(evaluation: Evaluation) -> Drawing:
    names, shares = _shares(evaluation.confusion)
    figure, axes = new_axes(4.6)
    top = max(float(np.nanmax(shares)), 1e-9)
    for (row, column), share in np.ndenumerate(shares):
        if np.isfinite(share):
            fill = to_rgba(LIGHT["blue"], float(share) / top)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=fill, edgecolor="none"))
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.grid(visible=False)
    places = range(len(names)) if len(names) <= _MOST_LABELS else []
    labels = [_short(name) for name in names] if len(names) <= _MOST_LABELS else []
    axes.set_xticks(places, labels, rotation=90, fontsize=7)
    axes.set_yticks(places, labels, fontsize=7)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class of the query")
    right = float(np.nanmean(np.diag(shares)))
    return Drawing(
        "confusion",
        "What is mistaken for what",
        f"Of the queries of each of {len(names)} unseen classes, the share taken for each class of their "
        f"episode; on the diagonal, the right one, {percent(right)} on average.",
        "Rows are the classes of queries, columns what they are taken for, among the episodes that offered "
        f"both (test split, {evaluation.result.episodes:,} episodes). Full blue is {percent(top)}, none 0%.",
        figure,
    )


def _shares(counts: tuple[Confusion, ...]) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Names of the classes, and the share [actual, taken for]; NaN where two classes never met."""
    names = list(dict.fromkeys(each.actual for each in counts))
    place = {name: number for number, name in enumerate(names)}
    shares = np.full((len(names), len(names)), np.nan)
    for each in counts:
        if each.offered:
            shares[place[each.actual], place[each.taken_for]] = each.taken / each.offered
    return names, shares


def _short(name: str) -> str:
    """A label; to matplotlib, dollars would begin a formula."""
    text = printable(name)
    return (text if len(text) <= 12 else f"{text[:11]}…").replace("$", r"\$")
