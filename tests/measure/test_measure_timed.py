"""Rounds in which what is compared is timed."""

from __future__ import annotations

from parashot.questions.timed import in_turn


def test_blocks_are_interleaved_and_warm_ups_are_left_out() -> None:
    order: list[str] = []

    def block(name: str) -> float:
        order.append(name)
        return float(len(order))

    measured = in_turn({"a": lambda: block("a"), "b": lambda: block("b")}, rounds=3, warmups=2)
    assert order == ["a", "b"] * 5
    assert measured == {"a": [5.0, 7.0, 9.0], "b": [6.0, 8.0, 10.0]}
