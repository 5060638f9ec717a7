"""The chosen model on unseen classes: what episodes look like, and what is mistaken for what."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from PIL import Image

from parashot.plain import printable
from parashot.questions.accuracy.records import Confusion, Evaluation, ShownEpisode
from parashot.questions.study import Study
from parashot.questions.text import counted, percent
from parashot.report.canvas import Drawing, new_axes, styled
from parashot.report.palette import LIGHT

MOST_LABELS = 30
"""More classes than these are too many to name beside the figure."""

TILE = 0.9
"""Side of an image where a cell is 1."""


def episode_drawings(study: Study) -> Iterator[Drawing]:
    """Draw what the chosen model makes of the test split."""
    if evaluation := study.results.evaluate:
        yield from (_episode(number, each) for number, each in enumerate(evaluation.shown))
        if evaluation.confusion:
            yield _confusion(evaluation)


@styled
def _episode(number: int, episode: ShownEpisode) -> Drawing:
    n_way, k_shot = episode.scores[0].n_way, episode.scores[0].k_shot
    scores = {(each.actual, each.query, each.offered): each.score for each in episode.scores}
    queries = sorted({(actual, query) for actual, query, _ in scores})
    top = max([each for each in scores.values() if np.isfinite(each)], default=0.0) or 1.0
    tiles = _tiles(episode)
    figure, axes = new_axes(1.1 + 0.42 * (len(queries) + 1))
    for offered in range(n_way):
        _image(axes, tiles[offered, 0], offered + 1, 0)
    right = 0
    for line, (actual, query) in enumerate(queries, start=1):
        _image(axes, tiles[actual, k_shot + query], 0, line)
        best = int(np.argmax([scores[actual, query, offered] for offered in range(n_way)]))
        right += best == actual
        for offered in range(n_way):
            score = scores[actual, query, offered]
            darkness = score / top if np.isfinite(score) else 0.0
            _square(axes, offered + 1, line, darkness, LIGHT["ink"] if offered == actual else "none")
            weight = "bold" if offered == best else "normal"
            axes.text(
                offered + 1, line, f"{score:.2f}", ha="center", va="center", fontweight=weight, zorder=3
            )
    axes.set_xlim(-0.55, n_way + 0.55)
    axes.set_ylim(len(queries) + 0.55, -0.55)
    axes.set_xticks(range(1, n_way + 1), [f"class {each + 1}" for each in range(n_way)])
    axes.xaxis.tick_top()
    axes.set_xlabel("relation score of a query with each class")
    axes.set_yticks([0, (len(queries) + 1) / 2], ["support", "queries"], rotation=90, va="center")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    shots = "" if k_shot == 1 else f" (the first of {k_shot} of each class is shown)"
    return Drawing(
        f"episode_{number}",
        f"Episode {number} of the test split",
        f"An episode as a table: {n_way} classes with a support image each, {len(queries)} queries and their "
        f"relation score with every class; {right} of {counted(len(queries), 'query', 'queries')} score "
        "highest with their own class.",
        f"Above a support image of each class{shots}, at the left queries, between them relation scores "
        "from 0 to 1, the darker the higher among these. Outlined is a query's own class, bold the class it "
        "is taken for. The first episodes are shown, not chosen ones.",
        figure,
    )


def _tiles(episode: ShownEpisode) -> npt.NDArray[np.uint8]:
    """Return the images [n_way, support and queries, side, side, 3]."""
    mosaic = np.asarray(Image.open(io.BytesIO(episode.images)).convert("RGB"))
    n_way = episode.scores[0].n_way
    side = mosaic.shape[0] // n_way
    return mosaic.reshape(n_way, side, -1, side, 3).transpose(0, 2, 1, 3, 4)


def _image(axes: Axes, tile: npt.NDArray[np.uint8], x: float, y: float) -> None:
    half = TILE / 2
    axes.imshow(tile, extent=(x - half, x + half, y + half, y - half), interpolation="bilinear", zorder=2)


def _square(axes: Axes, x: float, y: float, darkness: float, edge: str) -> None:
    fill, corner = to_rgba(LIGHT["blue"], 0.55 * darkness), (x - TILE / 2, y - TILE / 2)
    axes.add_patch(Rectangle(corner, TILE, TILE, facecolor=fill, edgecolor=edge, linewidth=1.4))


@styled
def _confusion(evaluation: Evaluation) -> Drawing:
    names, shares = _shares(evaluation.confusion)
    top = max(float(np.nanmax(shares)), 1e-9)
    figure, axes = new_axes(4.6)
    for (row, column), share in np.ndenumerate(shares):
        if np.isfinite(share):
            fill = to_rgba(LIGHT["blue"], float(share) / top)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=fill, edgecolor="none"))
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.grid(visible=False)
    labels = [_short(name) for name in names] if len(names) <= MOST_LABELS else []
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class of the query")
    right = percent(float(np.nanmean(np.diag(shares))))
    return Drawing(
        "confusion",
        "What is mistaken for what",
        f"Of the queries of each of {len(names)} unseen classes, the share taken for each class of their "
        f"episode; on the diagonal, the right one, {right} on average.",
        "Rows are the classes of queries, columns what they are taken for, among the episodes that offered "
        f"both (test split, {evaluation.result.episodes:,} episodes). Full blue is {percent(top)}, none 0%.",
        figure,
    )


def _shares(counts: Iterable[Confusion]) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return class names, and the share [actual, taken for]: NaN where two classes never met."""
    names = list(dict.fromkeys(each.actual for each in counts))
    place = {name: number for number, name in enumerate(names)}
    shares = np.full((len(names), len(names)), np.nan)
    for each in counts:
        if each.offered:
            shares[place[each.actual], place[each.taken_for]] = each.taken / each.offered
    return names, shares


def _short(name: str) -> str:
    """Shorten a label; to matplotlib, dollars would begin a formula."""
    text = printable(name)
    return (text if len(text) <= 12 else f"{text[:11]}…").replace("$", r"\$")
