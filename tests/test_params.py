"""params.yaml: what is right is read, and everything else is one line that names the key."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import project_tree

from parashot.errors import ParamsError
from parashot.knobs import apply, flatten, select
from parashot.params import Params, StrategyParams, load_params
from parashot.parsing import allowed, keys, parse, parse_yaml, read_yaml
from parashot.recipes import load_recipe

FILE = Path(__file__).parents[1] / "params.yaml"
KNOWN = {"episode.n_way": 5, "episode.k_shot": 1, "data.synthetic.images_per_class": 60}
TREE = project_tree({**load_recipe("quick").settings, **KNOWN})
"""The tree of the default study, whatever knobs are turned in this checkout."""


def _knobs(kind: Any, prefix: str = "") -> dict[str, str]:
    """Every knob by its dotted key, in order, with what it may be in words."""
    found: dict[str, str] = {}
    for name, hint in keys(kind).items():
        key = f"{prefix}{name}"
        found |= _knobs(hint, f"{key}.") if dataclasses.is_dataclass(hint) else {key: allowed(hint)}
    return found


KNOBS = _knobs(Params)
SECTIONS = sorted({key.rpartition(".")[0] for key in KNOBS if "." in key} | {"data", "loader"})

WRONG: dict[str, list[Any]] = {
    "a whole number": ["3", 1.5, math.nan, True, None, [3], {"a": 3}, -1, -(10**30)],
    "a number": ["0.5", "1e-3", True, None, math.nan, 10**400, -0.001],
    "true or false": ["true", 0, 1.0, None],
    "text": [3, True, "", "  ", ["text"]],
    "a list": [[], {}, "nonsense", 3, None, ["nonsense"], [-1], [1, 1], ["jpeg", "jpeg"]],
    "a choice": ["nonsense", "", None, 3, True, ["auto"]],
}
"""What a knob must refuse, by the first words of what it may be."""


def _kind(allowed: str) -> str:
    return next((kind for kind in WRONG if allowed.startswith(kind)), "a choice")


def _refused(tree: object) -> str:
    with pytest.raises(ParamsError) as raised:
        parse(Params, tree)
    message = str(raised.value)
    assert message.isprintable() and len(message) < 2_500
    return message


def _with(changes: dict[Any, Any], section: str = "") -> dict[str, Any]:
    """The tree with keys of a section set that it need not have."""
    tree = copy.deepcopy(TREE)
    _section(tree, section).update(changes)
    return tree


def _section(tree: dict[str, Any], dotted: str) -> dict[str, Any]:
    for name in filter(None, dotted.split(".")):
        tree = tree[name]
    return tree


# --- what is right ------------------------------------------------------------------------------------


def test_the_file_is_valid() -> None:
    params = load_params(FILE)
    assert params == parse(Params, read_yaml(FILE)) == pickle.loads(pickle.dumps(params))


def test_values_keep_their_types() -> None:
    params = parse(Params, apply(TREE, {"train.learning_rate": 1, "loader.bench.workers": [4, 0]}))
    assert (params.train.learning_rate, type(params.train.learning_rate)) == (1.0, float)
    assert params.loader.bench.workers == (4, 0)
    assert parse(Params, TREE).loader.bench.workers == "auto"


def test_flattened_params_are_every_knob_as_text_and_knobs_say_what_they_may_be() -> None:
    params = load_params(FILE)
    flat = flatten(params)
    assert set(flat) == set(KNOBS)
    assert flat["train.batchsz"] == str(params.train.batchsz)
    chosen = select(params, ["seed", "parallel.ddp"])
    assert "seed" in chosen and "parallel.ddp.bucket_mb" in chosen and "parallel.dp.enabled" not in chosen
    assert KNOBS["parallel.replicas"] == "a whole number at least 1 or auto"
    assert KNOBS["loader.bench.backends"] == "a list of different values, each jpeg | packed | resident"


def test_a_replaced_section_is_checked_with_the_others() -> None:
    params = parse(Params, TREE)
    with pytest.raises(ParamsError, match=r"train.batchsz: 9999999, but"):
        dataclasses.replace(params, train=dataclasses.replace(params.train, batchsz=9_999_999))


def test_a_strategy_without_options_is_a_section_more() -> None:
    params = parse(Params, _with({"gossip": {"enabled": False}}, "parallel"))
    for parallel in (params.parallel, dataclasses.replace(params.parallel, replicas=2)):
        assert parallel.strategies[-1] == "gossip" and parallel.strategies[0] == "serial"
        assert parallel.section("gossip") == parallel.section("unheard_of") == StrategyParams(False)
        assert parallel.switched_off("gossip") == "parallel.gossip.enabled is false"
    assert flatten(params)["parallel.gossip.enabled"] == "false"
    more = _with({"gossip": {"enabled": False, "peers": 3}}, "parallel")
    assert _refused(more) == "parallel.gossip.peers: unknown key; known here: enabled"


# --- what is wrong with one value ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_values_are_refused(kind: str) -> None:
    tried = [key for key, allowed in KNOBS.items() if _kind(allowed) == kind]
    for key in tried:
        for value in WRONG[kind]:
            if value in (None, "auto") and (" or null" in KNOBS[key] or "auto" in KNOBS[key]):
                continue
            message = _refused(apply(TREE, {key: value}))
            assert message.startswith(f"{key}: "), (key, value)
            assert f" is not allowed; it must be {KNOBS[key]}" in message, (key, value)
    assert tried


def test_a_missing_key_is_named() -> None:
    for key in [*KNOBS, *SECTIONS]:
        tree = copy.deepcopy(TREE)
        above, _, name = key.rpartition(".")
        del _section(tree, above)[name]
        assert _refused(tree).startswith(f"{key}: missing; it must be "), key


@pytest.mark.parametrize(
    ("section", "name"), [("", "whatever"), ("train", 3), ("train", None), ("parallel.ddp", "two\nlines")]
)
def test_an_unknown_key_is_named(section: str, name: Any) -> None:
    message = _refused(_with({name: 1}, section))
    assert message.startswith(f"{section}." if section else "")
    assert "unknown key; known here: " in message


def test_what_a_user_is_likely_to_mistake_gets_advice() -> None:
    misspelt = _with({"batch_size": 8}, "train")
    del misspelt["train"]["batchsz"]
    misnamed = _refused(misspelt)
    assert "also wrong" not in misnamed
    assert misnamed.startswith("train.batch_size: unknown key; did you mean batchsz? known here: ")
    for section in SECTIONS:
        assert "a section with keys is needed" in _refused(apply(TREE, {section: []})), section
    assert "without quotes" in _refused(apply(TREE, {"train.learning_rate": "1e-3"}))
    assert "without quotes" not in _refused(apply(TREE, {"train.learning_rate": "fast"}))
    assert len(_refused(apply(TREE, {"train.batchsz": "x" * 10_000}))) < 300  # a long value is cut
    earlier = _refused(apply(TREE, {"train.batchsz": 0, "parallel.replicas": "many"}))
    assert earlier.startswith("train.batchsz: 0 ") and earlier.endswith("; also wrong: parallel.replicas")


# --- what does not fit together -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data.source": "folder"}, "data.archive: null, but data.source is folder"),
        ({"data.archive": "/images"}, "data.archive: '/images' is not used by data.source synthetic"),
        ({"batchsz_study.baseline": 16}, "batchsz_study.baseline: 16 must be one of the sizes (2, 8, 32)"),
        ({"batchsz_study.episodes": 30}, "batchsz_study.sizes: 32, but batchsz_study.episodes is 30"),
        ({"warmup_study.sizes": [8]}, "warmup_study.sizes: [8], but at least two sizes are compared"),
        ({"warmup_study.episodes": 127}, "warmup_study.sizes: 64, but warmup_study.episodes is 127"),
        ({"train.batchsz": 1001, "train.episodes": 1000}, "train.batchsz: 1001, but train.episodes is 1000"),
        ({"evaluate.transductive_episodes": 1}, "evaluate.transductive_episodes: 1, but an interval"),
        ({"episode.n_way": 17}, "episode.n_way: 17, but split val has 16 classes; it must be at most 16"),
        ({"train.n_way": 65}, "train.n_way: 65, but split train has 64 classes; it must be at most 64"),
        ({"episode.k_shot": 50}, "evaluate.k_query: 15 with episode.k_shot 50 needs 65 images per class"),
        (
            {"data.source": "miniimagenet", "episode.k_shot": 600},
            "episode.k_query: 1 with episode.k_shot 600 needs 601 images per class, but miniimagenet has 600",
        ),
        ({"train.recompute": True, "train.compile": "default"}, "train.recompute: true, but a compiled"),
        ({"train.accumulate": 9, "train.batchsz": 8}, "train.accumulate: 9, but train.batchsz"),
        (
            {"train.accumulate": 2, "train.compile": "reduce-overhead"},
            "train.accumulate: 2, but train.compile",
        ),
        ({"augment.flip": True, "loader.backend": "jpeg"}, "augment: varies pixels on the device, but"),
        ({"pretrain.epochs": 0, "train.pretrained_share": 0.5}, "train.pretrained_share: 0.5, but pretrain"),
        ({"model.head": "residual", "model.shots": "sum"}, "model.shots: sum, but model.head residual"),
    ],
)
def test_values_that_do_not_fit_together(changes: dict[str, Any], says: str) -> None:
    assert _refused(apply(TREE, changes)).startswith(says)


@pytest.mark.parametrize(
    "changes",
    [
        {"data.source": "folder", "data.archive": "/images", "episode.n_way": 200},
        {"episode.n_way": 16, "evaluate.k_query": 59, "train.batchsz": 1000, "train.episodes": 1000},
        {"batchsz_study.sizes": [16], "batchsz_study.baseline": 16},
    ],
)
def test_values_that_just_fit_together(changes: dict[str, Any]) -> None:
    parse(Params, apply(TREE, changes))


# --- the file -----------------------------------------------------------------------------------------


def test_numbers_are_read_as_dvc_reads_them() -> None:
    """1e-3 is a number, as in YAML 1.2."""
    numbers = {"0.001": 0.001, "1e-3": 0.001, "1E5": 100_000.0, "-2e+3": -2000.0, "12": 12}
    for text, value in {**numbers, "'1e-3'": "1e-3", "1e": "1e"}.items():
        assert parse_yaml(f"key: {text}\n", "params.yaml") == {"key": value}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train: [1, 2\nseed: 0\n", "not valid YAML at line 2 ("),
        ("a: !!python/object/apply:os.system [touch ran]\n", "not valid YAML at line 1 ("),
        ("a: !!bool maybe\n", "not valid YAML; correct it there"),
        ("train:\n  batchsz: 1\n  episodes: 3\n  batchsz: 1\n", "not valid YAML at line 4 (the key"),
        ("- a\n- b\n", "['a', 'b'] found, a section with keys is needed"),
    ],
)
def test_a_file_that_is_no_tree_of_params(text: str, says: str, here: Path) -> None:
    file = here / "params.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError) as raised:
        load_params(file)
    assert str(raised.value).startswith(f"params.yaml: {says}")
    assert str(raised.value).isprintable() and list(here.iterdir()) == [file]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"absent\.yaml: cannot be read .*git checkout absent\.yaml"):
        load_params(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes("größe: 1".encode("latin-1"))
    with pytest.raises(ParamsError, match=r"latin\.yaml: cannot be read"):
        load_params(tmp_path / "latin.yaml")


@settings(max_examples=80)
@given(text=st.text() | st.text("{}[]:,-!&*?|>'\"%@#\n\t a1e.", max_size=30))
def test_any_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ParamsError) as raised:
        parse(Params, parse_yaml(text, "params.yaml"))
    assert str(raised.value).isprintable()
