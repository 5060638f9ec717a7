"""Confusions: every query is counted once, where it belongs; what never met is never offered."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from parashot.data.episodes import EpisodeSpec, draw_rows
from parashot.questions.accuracy.confusion import confusions


@given(
    sizes=st.lists(st.integers(4, 9), min_size=2, max_size=6),
    n_way=st.integers(2, 4),
    k_query=st.integers(1, 3),
    episodes=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_a_plain_loop(
    sizes: list[int], n_way: int, k_query: int, episodes: int, seed: int
) -> None:
    n_way = min(n_way, len(sizes))
    class_sizes = np.array(sizes)
    spec = EpisodeSpec(n_way, 1, k_query)
    rows = draw_rows(seed, "test", np.arange(episodes), class_sizes, spec)
    scores = np.random.default_rng(seed).standard_normal((episodes, n_way * k_query, n_way))
    names = [f"c{number}" for number in range(len(sizes))]
    label = np.repeat(np.arange(len(sizes)), sizes)
    taken: dict[tuple[str, str], int] = {}
    offered: dict[tuple[str, str], int] = {}
    for episode in range(episodes):
        classes = [names[label[rows[episode, position, 0]]] for position in range(n_way)]
        for query in range(n_way * k_query):
            own = classes[query // k_query]
            found = classes[int(scores[episode, query].argmax())]
            taken[own, found] = taken.get((own, found), 0) + 1
            for other in classes:
                offered[own, other] = offered.get((own, other), 0) + 1
    for each in confusions(scores, rows, class_sizes, names):
        assert each.taken == taken.pop((each.actual, each.taken_for), 0)
        assert each.offered == offered.pop((each.actual, each.taken_for), 0)
    assert not taken and not offered
