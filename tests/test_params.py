"""params.yaml: what is right is read, and everything else is one line that names the key."""

from __future__ import annotations

import copy
import dataclasses
import math
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parashot.errors import ParamsError
from parashot.params import Bounds, Params, flatten, load_params, parse, read_yaml
from parashot.recipes import apply, load_recipe

FILE = Path(__file__).parents[1] / "params.yaml"
KNOWN = {"episode.n_way": 5, "episode.k_shot": 1, "data.synthetic.images_per_class": 60}


def _default_study() -> dict[str, Any]:
    """The tree of the default study, whatever knobs are turned in this checkout."""
    tree = read_yaml(FILE)
    assert isinstance(tree, dict)
    return apply(tree, {**load_recipe("quick").settings, **KNOWN})


TREE = _default_study()


def _leaves(kind: Any, prefix: str = "") -> dict[str, Any]:
    """Every knob by its dotted key, with its type."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        hint, key = hints[field.name], prefix + field.name
        found |= _leaves(hint, f"{key}.") if dataclasses.is_dataclass(hint) else {key: hint}
    return found


def _sections(kind: Any, prefix: str = "") -> list[str]:
    hints = typing.get_type_hints(kind)
    own = [field.name for field in dataclasses.fields(kind) if dataclasses.is_dataclass(hints[field.name])]
    return [prefix + each for name in own for each in (name, *_sections(hints[name], f"{name}."))]


LEAVES = _leaves(Params)
SECTIONS = _sections(Params)


def _wrong(hint: Any) -> list[Any]:
    """What `hint` must refuse: other types, numbers as text, truth values for numbers, out of range."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _wrong(arguments[0]) + _out_of_range(arguments[0], arguments[1])
    if origin is Literal:
        return ["nonsense", "", None, 3, True, [arguments[0]], {arguments[0]: 1}]
    if origin is tuple:
        items = [[each] for each in _wrong(arguments[0])]
        return [[], {}, "nonsense", "", 3, None, True, *items]
    return {
        int: ["nonsense", "3", "1e3", "", 1.5, 2.0, math.nan, True, False, None, [3], {"a": 3}],
        float: ["nonsense", "0.5", "1e-3", "", True, False, None, math.nan, 10**400, [0.5], {"a": 0.5}],
        bool: ["nonsense", "true", "", 0, 1, 1.0, None, [True]],
        str: [3, 0.5, True, None, "", "  ", ["text"], {"a": "text"}],
    }[hint]


def _out_of_range(base: Any, bounds: Bounds) -> list[Any]:
    step = 1 if base is int else 1e-9
    values = [base(bounds.low) - step, -(10**6)]
    return [*values, base(bounds.high) + step, 10**12] if bounds.high is not None else values


WRONG_FOR_EITHER = {
    "data.archive": [3, True, "", " ", ["/images"], {}],
    "parallel.interface": [3, True, "", " ", ["eth0"], {}],
    "parallel.replicas": [0, -1, 1.5, True, "2", "all", None, [2]],
    "loader.bench.workers": [0, "0", None, True, [], [-1], [1025], [1.5], ["auto"], "all", {}],
}
"""Knobs that take one of two kinds of value."""


def _refused(tree: object) -> str:
    with pytest.raises(ParamsError) as raised:
        parse(Params, tree)
    message = str(raised.value)
    assert message.isprintable()
    return message


def _changed(**dotted: Any) -> dict[str, Any]:
    return apply(TREE, {key.replace("__", "."): value for key, value in dotted.items()})


# --- what is right ------------------------------------------------------------------------------------


def test_the_file_is_valid_and_frozen() -> None:
    params = load_params(FILE)
    assert params == parse(Params, read_yaml(FILE))
    for section in (params, params.train, params.loader.bench):
        with pytest.raises(dataclasses.FrozenInstanceError):
            section.seed = 1  # type: ignore[union-attr]


def test_values_keep_their_types() -> None:
    params = parse(
        Params, _changed(batchsz_study__sizes=[30, 2], train__learning_rate=1, loader__bench__workers="auto")
    )
    assert params.batchsz_study.sizes == (30, 2)
    assert (params.train.learning_rate, type(params.train.learning_rate)) == (1.0, float)
    assert params.loader.bench.workers == "auto"
    assert parse(Params, _changed(loader__bench__workers=[0, 4])).loader.bench.workers == (0, 4)
    assert parse(Params, _changed(parallel__replicas=3)).parallel.replicas == 3


def _bounds(hint: Any) -> Bounds | None:
    parts = typing.get_args(hint)
    own = next((part for part in parts if isinstance(part, Bounds)), None)
    return own or next((found for part in parts if (found := _bounds(part))), None)


@pytest.mark.parametrize("key", [key for key, hint in LEAVES.items() if _bounds(hint)])
def test_both_ends_of_a_range_are_in_it(key: str) -> None:
    bounds, is_list = _bounds(LEAVES[key]), "tuple" in str(LEAVES[key])
    assert bounds is not None
    for end in {bounds.low, bounds.low if bounds.high is None else bounds.high}:
        try:
            parse(Params, _changed(**{key: [end] if is_list else end}))
        except ParamsError as error:  # it may not fit to another value
            assert "is not allowed" not in str(error)


def test_flattened_params_are_every_knob_as_text() -> None:
    flat = flatten(load_params(FILE))
    assert flat.keys() == LEAVES.keys()
    assert flat["train.batchsz"] == str(load_params(FILE).train.batchsz)
    assert all(isinstance(value, str) for value in flat.values())


# --- what is wrong with one value ---------------------------------------------------------------------


@pytest.mark.parametrize("key", LEAVES)
def test_wrong_values_are_refused(key: str) -> None:
    wrong = WRONG_FOR_EITHER.get(key) or _wrong(LEAVES[key])
    assert len(wrong) > 5
    for value in wrong:
        message = _refused(_changed(**{key: value}))
        assert message.startswith(f"{key}: ")
        assert " is not allowed; it must be " in message


@pytest.mark.parametrize("key", [*LEAVES, *SECTIONS])
def test_a_missing_key_is_named(key: str) -> None:
    tree = copy.deepcopy(TREE)
    *above, name = key.split(".")
    section = tree
    for each in above:
        section = section[each]
    del section[name]
    assert _refused(tree).startswith(f"{key}: missing; it must be ")


@pytest.mark.parametrize("section", ["", *SECTIONS])
@pytest.mark.parametrize("name", ["batch_size", 3, None, "two\nlines"])
def test_an_unknown_key_is_named(section: str, name: Any) -> None:
    tree = copy.deepcopy(TREE)
    inner = tree
    for each in filter(None, section.split(".")):
        inner = inner[each]
    inner[name] = 1
    message = _refused(tree)
    assert message.startswith(f"{section}." if section else "")
    assert "unknown key; known here: " in message


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("value", [None, 3, "text", []])
def test_a_section_must_hold_keys(section: str, value: Any) -> None:
    assert _refused(_changed(**{section: value})).startswith(f"{section}: ")


@pytest.mark.parametrize("key", ["loader.bench.workers", "batchsz_study.sizes", "loader.bench.backends"])
def test_a_list_holds_nothing_twice(key: str) -> None:
    item = "jpeg" if key.endswith("backends") else 2
    assert "a list of different values" in _refused(_changed(**{key: [item, item]}))


def test_a_number_in_quotes_gets_advice() -> None:
    assert "without quotes" in _refused(_changed(train__learning_rate="1e-3"))
    assert "without quotes" not in _refused(_changed(train__learning_rate="fast"))


def test_a_long_value_is_cut() -> None:
    assert len(_refused(_changed(train__batchsz="x" * 10_000))) < 300
    assert "too long to show" in _refused(_changed(train__loss=[10**5000]))


# --- what does not fit together -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data.source": "folder"}, "data.archive: null, but data.source is folder"),
        ({"data.archive": "/images"}, "data.archive: '/images' is not used by data.source synthetic"),
        (
            {"parallel.init_method": "tcp://host"},
            "parallel.init_method: 'tcp://host' is none; it must be env://",
        ),
        ({"batchsz_study.baseline": 16}, "batchsz_study.baseline: 16 must be one of the sizes (2, 30, 60)"),
        ({"batchsz_study.block_episodes": 45}, "batchsz_study.block_episodes: 45 are no whole steps of 2"),
        ({"batchsz_study.episodes": 50}, "batchsz_study.sizes: 60, but batchsz_study.episodes is 50"),
        ({"warmup_study.sizes": [8]}, "warmup_study.sizes: [8], but at least two sizes are compared"),
        ({"warmup_study.episodes": 127}, "warmup_study.sizes: 64, but warmup_study.episodes is 127"),
        ({"train.batchsz": 1001, "train.episodes": 1000}, "train.batchsz: 1001, but train.episodes is 1000"),
        ({"train.val_episodes": 601}, "train.val_episodes: 601, but evaluate.val_episodes packs only 600"),
        (
            {"evaluate.transductive_episodes": 1},
            "evaluate.transductive_episodes: 1, but an interval needs two",
        ),
        ({"episode.n_way": 17}, "episode.n_way: 17, but split val has 16 classes; it must be at most 16"),
        (
            {"episode.k_shot": 50, "episode.k_query": 11},
            "episode.k_query: 11 with episode.k_shot 50 needs 61 images per class, but synthetic has 60",
        ),
        (
            {"episode.k_shot": 50},
            "evaluate.k_query: 15 with episode.k_shot 50 needs 65 images per class, but synthetic has 60",
        ),
        (
            {"data.source": "miniimagenet", "episode.k_shot": 596},
            "episode.k_query: 5 with episode.k_shot 596 needs 601 images per class, but miniimagenet has 600",
        ),
        (
            {"data.source": "folder", "data.archive": "/images", "episode.k_shot": 2001},
            "episode.k_shot: 2001 × 5 classes is no few-shot task; at most 10000",
        ),
    ],
)
def test_values_that_do_not_fit_together(changes: dict[str, Any], says: str) -> None:
    assert _refused(_changed(**changes)).startswith(says)


@pytest.mark.parametrize(
    "changes",
    [
        {"data.source": "folder", "data.archive": "/images", "episode.n_way": 200},
        {"data.source": "miniimagenet", "data.archive": "../mini-imagenet"},
        {"episode.n_way": 16, "evaluate.k_query": 59},
        {"batchsz_study.sizes": [16], "batchsz_study.baseline": 16, "batchsz_study.block_episodes": 16},
        {"train.batchsz": 1000, "train.episodes": 1000},
        {"train.val_episodes": 600},
    ],
)
def test_values_that_just_fit_together(changes: dict[str, Any]) -> None:
    parse(Params, _changed(**changes))


# --- the file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.001", 0.001),
        ("1.0e-3", 0.001),
        ("1e-3", 0.001),
        ("1e-05", 0.00001),
        ("1E5", 100_000.0),
        ("-2e+3", -2000.0),
        ("'1e-3'", "1e-3"),
        ("1e", "1e"),
        ("e-3", "e-3"),
        ("12", 12),
    ],
)
def test_numbers_are_read_as_dvc_reads_them(text: str, value: object, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(f"key: {text}\n", encoding="utf-8")
    assert read_yaml(file) == {"key": value}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train: [1, 2\nseed: 0\n", "params.yaml: not valid YAML at line 2 ("),
        ("a: b: c\n", "params.yaml: not valid YAML at line 1 ("),
        ("\ttrain: 1\n", "params.yaml: not valid YAML at line 1 ("),
        (
            "a: !!python/object/apply:os.system [date]\n",
            "params.yaml: not valid YAML at line 1 (",
        ),
        ("a: !!bool maybe\n", "params.yaml: not valid YAML; correct it there"),
        ("a: !!int ''\n", "params.yaml: not valid YAML; correct it there"),
        ("a: !!timestamp yesterday\n", "params.yaml: not valid YAML; correct it there"),
        ("[" * 500, "params.yaml: not valid YAML"),
        ("a: \x01\n", "params.yaml: not valid YAML; correct it there"),
        ("", "params.yaml: None found, a section with keys is needed"),
        ("- a\n- b\n", "params.yaml: ['a', 'b'] found, a section with keys is needed"),
        ("just text", "params.yaml: 'just text' found, a section with keys is needed"),
    ],
)
def test_a_file_that_is_no_tree_of_params(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError) as raised:
        load_params(file)
    assert str(raised.value).startswith(says)
    assert str(raised.value).isprintable()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"absent\.yaml: cannot be read .*git checkout absent\.yaml"):
        load_params(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes("größe: 1".encode("latin-1"))
    with pytest.raises(ParamsError, match=r"latin\.yaml: cannot be read"):
        load_params(tmp_path / "latin.yaml")


# --- anything at all ----------------------------------------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary()
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(_SCALARS, inner), max_leaves=8
)


@settings(max_examples=80, deadline=None)
@given(key=st.sampled_from([*LEAVES, *SECTIONS]), value=_TREES)
def test_any_value_anywhere_is_taken_or_refused_in_one_line(key: str, value: Any) -> None:
    try:
        parse(Params, _changed(**{key: value}))
    except ParamsError as error:
        assert str(error).isprintable()


@settings(max_examples=80, deadline=None)
@given(tree=_TREES)
def test_any_tree_is_refused_in_one_line(tree: Any) -> None:
    _refused(tree)


@settings(max_examples=80, deadline=None)
@given(text=st.text() | st.text("{}[]:,-!&*?|>'\"%@#\n\t a1e.", max_size=30))
def test_any_text_is_read_or_refused_in_one_line(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "params.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ParamsError) as raised:
        load_params(file)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"train__accumulate": 9, "train__batchsz": 8},
            "train.accumulate: 9 parts, but a step has train.batchsz 8 episodes; it must be at most that",
        ),
        (
            {"train__recompute": True, "train__compile": "default"},
            "train.recompute: true, but a network compiled with default decides itself what it recomputes; "
            "set train.compile to none",
        ),
        (
            {"train__accumulate": 2, "train__compile": "reduce-overhead"},
            "train.accumulate: 2 parts, whose gradients a network compiled with reduce-overhead would "
            "overwrite; set train.compile to default or none",
        ),
        (
            {"augment__flip": True, "loader__backend": "jpeg"},
            "augment: varies pixels on the device, but loader.backend jpeg normalises them before; "
            "set loader.backend to packed or resident",
        ),
    ],
)
def test_what_shapes_a_step_must_go_together(changes: dict[str, Any], line: str) -> None:
    assert _refused(_changed(**changes)) == line
    cause, *_ = changes
    parse(Params, _changed(**{key: value for key, value in changes.items() if key != cause}))
