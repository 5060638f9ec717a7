"""Grids of params: what is written as `-S key=value,value`, and the points it makes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import tiny_tree

from parashot.errors import ParamsError
from parashot.recipes import Value, arguments, load_recipe, recipe_names
from parashot.sweep.grid import grid, read_choices, shown, varied

TREE = tiny_tree()
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 2**31 - 1),
    "train.learning_rate": st.floats(1e-9, 10, allow_nan=False),
    "train.recompute": st.booleans(),
    "train.schedule": st.sampled_from(["constant", "cosine"]),
    "parallel.replicas": st.one_of(st.just("auto"), st.integers(1, 100)),
    "loader.bench.workers": st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
}


@st.composite
def choices(draw: st.DrawFn) -> dict[str, list[Value]]:
    keys = draw(st.lists(st.sampled_from(sorted(CHOICES)), unique=True, max_size=3))
    return {key: draw(st.lists(CHOICES[key], min_size=1, max_size=3, unique_by=repr)) for key in keys}


def words(choices: dict[str, list[Value]]) -> list[str]:
    """`choices` as a user writes them."""
    return [f"{key}={','.join(map(shown, values))}" for key, values in choices.items()]


@given(choices())
def test_what_is_written_is_what_is_read(choices: dict[str, list[Value]]) -> None:
    assert read_choices(words(choices)) == choices


@given(choices())
def test_a_grid_is_the_product_of_its_choices_in_their_order(choices: dict[str, list[Value]]) -> None:
    points = grid(TREE, choices)
    assert len(points) == math.prod(map(len, choices.values()))
    assert len({point.name for point in points}) == len(points)
    for number, point in enumerate(points):
        assert list(point.settings) == list(choices)
        rest = number
        for key, values in reversed(choices.items()):
            rest, index = divmod(rest, len(values))
            assert point.settings[key] == values[index]


@given(choices())
def test_a_point_is_the_params_that_its_settings_make(choices: dict[str, list[Value]]) -> None:
    for point in grid(TREE, choices):
        for key, value in point.settings.items():
            found: Any = point.params
            for name in key.split("."):
                found = getattr(found, name)
            assert found == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_are_read_as_they_are_printed(name: str) -> None:
    recipe = load_recipe(name)
    printed = [word for word in arguments(recipe) if word != "-S"]
    assert read_choices(printed) == {key: [value] for key, value in recipe.settings.items()}


def test_what_is_fixed_gives_way_to_what_is_chosen() -> None:
    (point,) = grid(TREE, {"train.batchsz": [2]}, {"train.batchsz": 4, "train.episodes": 6})
    assert (point.params.train.batchsz, point.params.train.episodes) == (2, 6)
    assert point.name == "train.batchsz=2"


def test_no_choice_is_one_point() -> None:
    (point,) = grid(TREE, {})
    assert (point.name, point.settings) == ("params.yaml", {})


def test_only_what_differs_tells_points_apart() -> None:
    assert varied({"seed": [0, 1], "train.batchsz": [4]}) == ["seed"]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a=1e-3", 0.001),
        ("a=.5", 0.5),
        ("a=-2", -2),
        ("a=True", True),
        ("a=NULL", None),
        ("a='1'", "1"),
        ("a=tcp://host:1", "tcp://host:1"),
        ("a=[]", []),
        ("a=[x, [1,2]]", ["x", [1, 2]]),
        ("a=b=c", "b=c"),
    ],
)
def test_values(word: str, value: Value) -> None:
    assert read_choices([word]) == {"a": [value]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["seed"], "-S seed: no setting; write key=value"),
        (["=1"], "-S =1: no setting"),
        (["seed="], "-S seed=: a value is missing"),
        (["seed=1,,2"], "a value is missing"),
        (["seed=1", "seed=2"], "seed is given twice"),
        (["seed=1,1"], "1 is there twice"),
        (["a=[1,2"], "its brackets do not match"),
        (["a=1]"], "its brackets do not match"),
        (["train.bachsz=2"], "train.bachsz: unknown key"),
        (["train.batchsz=2,zero"], "train.batchsz: 'zero' is not allowed"),
        (["train.batchsz=99"], "train.batchsz: 99, but train.episodes is 7"),
        (["train=3"], "train: 3 found, a section with keys is needed"),
        (["data.pack_size=32"], "data: a sweep trains on the images that are packed"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(given: list[str], message: str) -> None:
    with pytest.raises(ParamsError) as raised:
        grid(TREE, read_choices(given))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
