"""Is the graph of a step kept after it? Then memory grows with every step."""

from __future__ import annotations

import gc
from weakref import ReferenceType, ref

from torch import Tensor


class Mark:
    """Is hooked to a node of a graph, and lives as long."""

    def __call__(self, *gradients: object) -> None:
        """Let gradients pass."""


def marked(outputs: Tensor) -> list[ReferenceType[Mark]]:
    """Mark every node of the graph of `outputs` but those of the parameters, which others may keep."""
    waiting, seen, marks = [outputs.grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node.name().endswith("AccumulateGrad"):
            continue
        seen.add(node)
        mark = Mark()
        node.register_prehook(mark)
        marks.append(ref(mark))
        waiting += [each for each, _ in node.next_functions]
    return marks


def is_kept(marks: list[ReferenceType[Mark]]) -> bool:
    """Whether a part of the graph is still there."""
    gc.collect()
    return any(mark() is not None for mark in marks)
