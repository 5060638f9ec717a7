"""Batches of any class with their tensors apart from the rest, so that these can be moved and pinned.

Most need none of this: PyTorch's trees know tuples, lists, dicts and named tuples. Dataclasses,
`BatchEncoding` of transformers or `Batch` of torch_geometric they do not.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import register_pytree_node, tree_leaves

LEAF_CLASSES = (Tensor, str, bytes, int, float, complex, type(None), np.ndarray, np.generic)
"""Classes of leaves that hold no tensors, beside tensors."""


@dataclass(frozen=True)
class Apart:
    """Tensors of an object, and the object pickled without them; a node of PyTorch's trees."""

    tensors: list[Tensor]
    rest: bytes


register_pytree_node(
    Apart,
    lambda batch: (batch.tensors, batch.rest),
    lambda tensors, rest: Apart(list(tensors), rest),
    serialized_type_name="parashot.Apart",
)


def take_apart(data: Any) -> Any:
    """Take apart a batch that holds objects of other classes; return any other one as it is."""
    known = all(isinstance(leaf, LEAF_CLASSES) for leaf in tree_leaves(data))
    return data if known else without_tensors(data)


def without_tensors(data: Any) -> Apart:
    """Take an object apart. It may raise an error of any kind: classes pickle themselves."""
    tensors, rest = list[Tensor](), BytesIO()
    _WithoutTensors(rest, tensors).dump(data)
    return Apart(tensors, rest.getvalue())


def put_together(data: Any) -> Any:
    """Undo `take_apart`, with the tensors as they are now."""
    return _WithTensors(BytesIO(data.rest), data.tensors).load() if isinstance(data, Apart) else data


class _WithoutTensors(pickle.Pickler):
    def __init__(self, file: BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _WithTensors(pickle.Unpickler):
    def __init__(self, file: BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: int) -> Tensor:
        return self.tensors[pid]
