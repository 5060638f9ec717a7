"""The page: one self-contained HTML file, from the answer down to the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parashot.questions.text import accuracy, percent
from parashot.report.canvas import Drawing, svg
from parashot.report.markup import Markup, document, element, join
from parashot.report.methods import hardware_list, methods, scaling_caveats
from parashot.report.style import style_sheet
from parashot.report.tables import Table, as_html, badge

Summary = Mapping[str, Any]
TITLE = "How to parallelise this training"


@dataclass(frozen=True)
class Material:
    """What the page is made of."""

    summary: Summary
    key: Drawing | None
    drawings: Mapping[str, Drawing]
    tables: Mapping[str, Table]
    params_text: str


@dataclass(frozen=True)
class Section:
    """One section, with its name in the navigation."""

    id: str
    name: str
    heading: str
    content: Markup


def render_page(material: Material) -> str:
    """Render the whole page; nothing in it is fetched from anywhere."""
    sections = _sections(material)
    return document(
        f"{TITLE}: parashot",
        style_sheet(),
        element("a", "Skip to the content", href="#answer", class_="skip"),
        _navigation(sections),
        element("main", _answer(material), [_section(each) for each in sections]),
        element(
            "footer",
            element("p", "Made by parashot from results/summary.json; every table is there in full."),
        ),
    )


def _sections(material: Material) -> list[Section]:
    return [
        Section("loader", "Loader", "How many loader workers?", _loader(material)),
        Section("strategies", "Strategies", "Which strategy?", _strategies(material)),
        Section("scaling", "More devices", "What would more devices buy?", _scaling(material)),
        Section("table1", "DP and DDP", "What DP and DDP do", _tables(material, "table1")),
        Section("batch-sizes", "Batch sizes", "How many episodes per step?", _batchsz(material)),
        Section("accuracy", "Accuracy", "Does the accuracy survive it?", _accuracy(material)),
        Section("episodes", "Episodes", "What an episode looks like", _episodes(material)),
        Section("claims", "Claims", "What holds of the study's claims", _claims(material)),
        Section("methods", "Methods", "How it was measured", methods(material.summary)),
        Section("hardware", "Hardware", "On what, and with which parameters", _hardware(material)),
    ]


def _navigation(sections: Sequence[Section]) -> Markup:
    links = [("answer", "Answer"), *((each.id, each.name) for each in sections)]
    items = [element("li", element("a", name, href=f"#{target}")) for target, name in links]
    return element("nav", element("ul", items), aria_label="Sections")


def _section(section: Section) -> Markup:
    return element(
        "section", element("h2", section.heading, id=section.id), section.content, aria_labelledby=section.id
    )


def _answer(material: Material) -> Markup:
    summary = material.summary
    cards = element("div", [_card(each) for each in summary["advice"]], class_="cards")
    key = _figure(material.key, heading="h2") if material.key else None
    return element(
        "header",
        element("h1", TITLE, id="answer"),
        element("p", summary["answer"], class_="answer"),
        _notes(summary),
        element("div", key, cards, class_="first"),
    )


def _card(advice: Mapping[str, Any]) -> Markup:
    if not advice["choice"]:
        return element(
            "div",
            element("p", advice["topic"], class_="topic"),
            element("p", f"Not known: {advice['sure']}"),
            class_="card",
        )
    setting = element("p", element("code", f"-S {advice['setting']}")) if advice["setting"] else None
    return element(
        "div",
        element("p", advice["topic"], class_="topic"),
        element("p", advice["choice"], class_="choice"),
        element("p", _sentence(advice["buys"])),
        element("p", _sentence(advice["sure"])),
        setting,
        class_="card",
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _notes(summary: Summary) -> list[Markup]:
    """What a reader must know before the first number."""
    notes = []
    if summary["synthetic"]:
        notes.append(
            "Synthetic data: the images were drawn by a program. Times, speedups and memory are real; the "
            "accuracies say whether strategies agree, not how well real images are recognised."
        )
    if summary["short_run"]:
        episodes = summary["method"]["train_episodes"]
        notes.append(
            f"A short run: {episodes:,} training episodes. Published accuracies take 200,000 and more; these "
            "are not comparable with them."
        )
    if summary["method"]["batch_per"] == "rank":
        notes.append(
            "batch_per is rank: every rank drew its own batch and its own episodes, as the study's DDP did, "
            "so DDP did more work than the other strategies."
        )
    notes += [f"Missing: {reason}" for reason in summary["missing"].values()]
    return [element("div", element("p", note), class_="note", role="note") for note in notes]


def _figure(drawing: Drawing, heading: str = "h3") -> Markup:
    """A figure with its title, which is a `heading` of the level below what it stands under."""
    return element(
        "figure",
        element(heading, drawing.title),
        svg(drawing),
        element("figcaption", drawing.caption),
        id=f"figure-{drawing.name}",
    )


def _figures(material: Material, *names: str) -> Markup | None:
    found = [_figure(material.drawings[name]) for name in names if name in material.drawings]
    return element("div", found, class_="figures") if found else None


def _tables(material: Material, *names: str) -> Markup:
    return join([as_html(material.tables[name]) for name in names if name in material.tables])


def _missing(material: Material, what: str) -> Markup:
    return element("p", f"{what} not measured; `dvc repro` measures what is missing.")


def _loader(material: Material) -> Markup:
    if "loader" not in material.tables:
        return join(_missing(material, "Loader workers were"), _tables(material, "loader_study"))
    names = ("loader_speedup", "loader_efficiency", "loader_rate", "loader_memory")
    words = (
        "jpeg decodes, resizes and normalises every image when asked, as the study did; packed gathers from "
        "an array that was decoded once."
    )
    return join(element("p", words), _figures(material, *names), _tables(material, "loader", "loader_study"))


def _strategies(material: Material) -> Markup:
    rows = material.summary["strategies"]
    if not rows:
        return _missing(material, "Strategies were")
    emulated = rows.get("dp", {}).get("device") == "cpu"
    words = (
        "DataParallel without GPUs means here what it means on GPUs: one process, a thread per replica, the "
        "parameters copied out from the first replica at each step, inputs scattered, forward and backward "
        "in each replica's own thread, gradients summed to the first, one optimizer step."
    )
    return join(
        element("p", words) if emulated else None,
        _figures(material, "strategies_step", "strategies_shares", "curves_accuracy"),
        _tables(material, "strategies", "costs", "step"),
    )


def _scaling(material: Material) -> Markup:
    if "scaling" not in material.tables:
        return join(_missing(material, "What a prediction needs was"), _tables(material, "scaling_published"))
    names = ("scaling", "scaling_checked", "scaling_published")
    return join(
        [element("p", each) for each in scaling_caveats(material.summary)],
        _figures(material, "scaling"),
        _tables(material, *names),
    )


def _batchsz(material: Material) -> Markup:
    if "batchsz" not in material.tables:
        return _missing(material, "Batch sizes were")
    words = (
        "Every size trains on the same episodes, so a larger one takes fewer steps. As in the study, a size "
        "that needs longer than the baseline is stopped; its full time is then projected from the rate seen."
    )
    figures = _figures(material, "batchsz_time", "batchsz_accuracy", "batchsz_communication")
    return join(element("p", words), figures, _tables(material, "batchsz"))


def _accuracy(material: Material) -> Markup:
    summary = material.summary
    evaluate = summary["evaluate"]
    parts: list[object] = []
    if evaluate:
        chance = percent(1 / evaluate["n_way"])
        parts.append(
            element(
                "p",
                f"Test accuracy of the model trained with {evaluate['strategy']}, chosen by "
                f"{evaluate['chosen_by']}: ",
                element("strong", accuracy(evaluate["test_accuracy"], evaluate["test_accuracy_ci95"])),
                f" over {evaluate['episodes']:,} episodes ({evaluate['n_way']}-way, "
                f"{evaluate['k_shot']}-shot, {evaluate['k_query']} queries per class), measured once; chance "
                f"is {chance}.",
            )
        )
    drawn = _figures(material, "accuracy", "accuracy_difference", "accuracy_episodes", "curves_loss")
    if not parts and not drawn:
        return _missing(material, "Accuracy was")
    return join(parts, _tables(material, "tasks"), drawn, _tables(material, "time_to_accuracy", "accuracy"))


def _episodes(material: Material) -> Markup:
    evaluate = material.summary["evaluate"]
    if not evaluate:
        return _missing(material, "The test split was")
    words = (
        f"The model of {evaluate['strategy']} on classes it never saw: from {evaluate['k_shot']} support "
        f"{'image' if evaluate['k_shot'] == 1 else 'images'} of each of {evaluate['n_way']} classes it must "
        "say which class a query belongs to."
    )
    figures = _figures(material, "episode_0", "episode_1", "confusion")
    return join(element("p", words), figures, _tables(material, "confusion"))


def _claims(material: Material) -> Markup:
    claims = material.summary["claims"]
    verdicts = list(dict.fromkeys(claim["verdict"] for claim in claims))
    counts = [
        element("span", badge(each), f" {sum(claim['verdict'] == each for claim in claims)}")
        for each in verdicts
    ]
    return join(element("p", counts, class_="tally"), _tables(material, "claims"))


def _hardware(material: Material) -> Markup:
    hardware = material.summary["hardware"]
    machine = hardware_list(hardware) if hardware else _missing(material, "The machine was")
    params = element("pre", material.params_text, tabindex="0", role="region", aria_label="params.yaml")
    return join(machine, element("h3", "params.yaml"), params)
