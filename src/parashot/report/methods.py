"""How the numbers were made, in words: what a reader needs to believe them, or to measure them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parashot.questions.text import listed, percent, ratio
from parashot.report.markup import Markup, element, join


def methods(summary: Mapping[str, Any]) -> Markup:
    """Explain what was timed, how it is summarised, and what a verdict asks for."""
    facts = summary["method"]
    groups = (
        ("Times", _times(facts)),
        ("Equal work", _work(facts)),
        ("Accuracy and verdicts", _verdicts(facts)),
    )
    return join(
        [
            [element("h3", name), element("ul", [element("li", each) for each in items])]
            for name, items in groups
        ]
    )


def scaling_caveats(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Say what a prediction is made of, and what it leaves out."""
    scaling = summary["scaling"]
    seen = "How much of the messages' time is hidden was not seen here, so none counts as hidden"
    if scaling["hidden"] is not None:
        seen = f"Here {percent(scaling['hidden'])} of the messages' time was hidden behind computing"
    return (
        "Predicted by a model of cost, not measured: a step is a fixed part, a part per episode of the "
        f"replica, and what of the rings that sum the gradients is not hidden. {seen}. No more than the "
        "backward pass lasts is ever taken as hidden. A replica takes "
        f"{ratio(scaling['contention'])} times as long while the others of its machine compute and the "
        "slowest is waited for. A node is a "
        "machine such as this one.",
        "Where it is wrong: links by name have the rate of their standard, which no program quite reaches, "
        "so those rows are the best case. It knows no stragglers beyond those here, no other traffic, no "
        "loading of data and no limit of memory; it takes rings where a library may take trees, and a "
        "replica's time for a straight line in its episodes, which it is not where a device is nearly idle. "
        "The interval is that of the measurements here, not of these assumptions.",
    )


def hardware_list(hardware: Mapping[str, Any]) -> Markup:
    """List what the machine is."""
    facts = (
        ("CPU", hardware["cpu_model"]),
        ("Cores", f"{hardware['cores']} physical, {hardware['threads']} hardware threads"),
        ("Memory", f"{hardware['memory_gib']} GiB"),
        ("GPUs", listed(hardware["gpus"]) or "none"),
        ("System", hardware["platform"]),
        (
            "Software",
            f"Python {hardware['python']}, PyTorch {hardware['torch']}, CUDA {hardware['cuda'] or 'none'}",
        ),
    )
    return element("dl", [[element("dt", name), element("dd", value)] for name, value in facts])


def _times(facts: Mapping[str, Any]) -> list[str]:
    level = f"{100 * facts['confidence']:g}%"
    return [
        f"Strategies: {facts['strategy_blocks']} blocks of {facts['strategy_steps']} training steps each, "
        f"after {facts['strategy_warmup_steps']} warm-up steps that are not counted. The images lie ready in "
        "memory; a step is their way to the device, forward, backward, the exchange of gradients and the "
        "optimizer's update. The clock stops when the device has done all it was given.",
        f"Loader: {facts['loader_blocks']} blocks of {facts['loader_batches']} batches of "
        f"{facts['loader_batchsz']} episodes, read and thrown away. The first batch is timed apart; what the "
        "workers had ready by then is taken before the clock starts.",
        f"Batch sizes: {facts['batchsz_blocks']} blocks of {facts['batchsz_block_episodes']} episodes, with "
        "and without the exchange of gradients; whole runs beside them are single measurements.",
        "Blocks of all settings are interleaved (A B C, A B C, …), so that what slows the machine for a "
        "while slows all of them. Nothing is logged inside a timed window.",
        f"A time is the median over blocks. Its {level} interval is a percentile bootstrap of "
        f"{facts['resamples']:,} resamples, widened for few blocks (Hesterberg 2015). A ratio is one of two "
        "medians, with the rounds of both resampled together; nothing is assumed to be normally distributed.",
        "The base case of a strategy's speedup is serial: one replica with as many threads as any replica "
        "has; one replica with all cores stands beside it. Of a loader's: no workers with the same backend. "
        f"Of a batch size's: batchsz {facts['batchsz_baseline']}. Efficiency is speedup over replicas, "
        "workers, or the threads of one replica with all cores.",
    ]


def _work(facts: Mapping[str, Any]) -> list[str]:
    share = "over all replicas together" if facts["batch_per"] == "global" else "per rank, as in the study"
    return [
        f"Every strategy trains on the same {facts['train_episodes']:,} episodes ({facts['n_way']}-way, "
        f"{facts['k_shot']}-shot, {facts['k_query']} queries per class) in the same order; batchsz is "
        f"{facts['batchsz']} episodes per step, {share}.",
        f"The network is a Relation Network with the embedding {facts['embedding']} at {facts['image_size']} "
        f"pixels; seed {facts['seed']}. Episode i is a function of the seed and i alone, whatever the "
        "strategy or the loader.",
        *_computed(facts),
        "On a CPU a replica has the same number of threads whatever the strategy.",
    ]


def _computed(facts: Mapping[str, Any]) -> list[str]:
    if facts["precision"] is None:
        return []
    precision = {"bf16": "bfloat16 autocast, scores and loss in float32"}.get(facts["precision"], "float32")
    compiled = "not compiled" if facts["compile"] == "none" else f"compiled ({facts['compile']})"
    return [
        f"All strategies compute a step in the same way: {precision}; {compiled}; pairs joined by "
        f"{facts['pairing']}. What params left to auto was measured before anything was trained."
    ]


def _verdicts(facts: Mapping[str, Any]) -> list[str]:
    level = f"{100 * facts['confidence']:g}%"
    margin = f"± {100 * facts['accuracy_margin']:g} percentage points"
    seeds = "one training per strategy says nothing of the luck of a seed"
    if facts["seeds"] > 1:
        seeds = f"strategies are compared over {facts['seeds']} seeds"
    return [
        f"Accuracy is the mean over episodes ± 1.96 standard errors: {facts['val_episodes']:,} validation "
        f"episodes choose, {facts['test_episodes']:,} test episodes are measured once, with "
        f"{facts['eval_k_query']} queries per class. The interval is over episodes; {seeds}.",
        "“The same accuracy” is an equivalence test on paired episodes: two one-sided tests within "
        f"{margin}. Different means an interval wholly outside of it.",
        f"“Faster” needs a {level} interval of the ratio that excludes 1. Where the best of several settings "
        "is compared, the intervals hold together (Bonferroni).",
        "A claim holds, does not hold, is undecided where the data do not decide, or cannot be tested here.",
    ]
