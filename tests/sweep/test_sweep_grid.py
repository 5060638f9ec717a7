"""Grids of params: what is written as `-S key=value,value`, and the points it makes."""

from __future__ import annotations

from itertools import product

import pytest
from tiny_data import tiny_tree

from parashot.errors import ParamsError, UsageError
from parashot.parsing import Value, in_yaml
from parashot.sweep.grid import grid, read_choices

TREE = tiny_tree()
WORDS = ["seed=0,1,2", "parallel.replicas=auto,2", "loader.bench.workers=[0],[1,2]"]
CHOICES: dict[str, list[Value]] = {
    "seed": [0, 1, 2],
    "parallel.replicas": ["auto", 2],
    "loader.bench.workers": [[0], [1, 2]],
}


def test_what_is_written_is_what_is_read() -> None:
    assert read_choices(WORDS) == CHOICES
    assert [f"{key}={','.join(map(in_yaml, values))}" for key, values in CHOICES.items()] == WORDS
    values = {"a=1e-3": 0.001, "a=null": None, "a='1'": "1", "a=tcp://host:1": "tcp://host:1"}
    assert [read_choices([word]) for word in values] == [{"a": [value]} for value in values.values()]


def test_a_grid_is_the_product_of_its_choices_in_their_order() -> None:
    points = grid(TREE, CHOICES)
    assert len({point.name for point in points}) == len(points) == 12
    assert points[-1].name == "seed=2 parallel.replicas=2 loader.bench.workers=[1,2]"
    params = [each.params for each in points]
    found = [(each.seed, each.parallel.replicas, each.loader.bench.workers) for each in params]
    assert found == [*product((0, 1, 2), ("auto", 2), ((0,), (1, 2)))]


def test_what_is_fixed_gives_way_to_what_is_chosen() -> None:
    (point,) = grid(TREE, {"train.batchsz": [2]}, {"train.batchsz": 4, "train.episodes": 6})
    assert (point.params.train.batchsz, point.params.train.episodes) == (2, 6)
    assert point.name == "train.batchsz=2"
    (point,) = grid(TREE, {})
    assert (point.name, point.settings) == ("params.yaml", {})


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (["seed=1,,2"], UsageError, "-S seed=1,,2: write key=value, or key=value,value"),
        (["seed=range(0,1,0)"], UsageError, "-S seed=range(0,1,0): write key=value"),
        (["seed=1", "seed=2"], UsageError, "seed is given twice"),
        (["train.bachsz=2"], ParamsError, "train.bachsz: unknown key"),
        (["seed.deeper=2"], ParamsError, "seed.deeper: unknown key"),
        (["train.batchsz=2,zero"], ParamsError, "train.batchsz: "),
        (["data.pack_size=32"], ParamsError, "data: a sweep trains on the images that are packed"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(given: list[str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as raised:
        grid(TREE, read_choices(given))
    assert message in str(raised.value)
