"""Objects of any class with their tensors apart from the rest.

Batches, so that their tensors can be moved and pinned. Most need none of this: PyTorch's trees know tuples,
lists, dicts and named tuples. Dataclasses, `BatchEncoding` of transformers or `Batch` of torch_geometric they
do not. And data sets of many tensors, so that they can be sent to workers.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node, tree_leaves

from parashot.tasks.sending import Nowhere

PLAIN = (Tensor, str, bytes, int, float, complex, type(None), np.ndarray, np.generic)
"""Classes of leaves that hold no tensors, beside tensors."""


@dataclass(frozen=True)
class Packed:
    """Tensors of an object, and the object pickled without them; a node of PyTorch's trees."""

    tensors: list[Tensor]
    rest: bytes


register_pytree_node(
    Packed,
    lambda packed: (packed.tensors, packed.rest),
    lambda tensors, rest: Packed(list(tensors), rest),
    serialized_type_name="parashot.Packed",
)


def pack(data: Any) -> Any:
    """Pack a batch that holds objects of other classes; return any other one as it is."""
    if all(isinstance(leaf, PLAIN) for leaf in tree_leaves(data)):
        return data
    tensors, rest = list[Tensor](), BytesIO()
    _WithoutTensors(rest, tensors).dump(data)
    return Packed(tensors, rest.getvalue())


def unpack(data: Any) -> Any:
    """Undo `pack`, with the tensors as they are now."""
    return _WithTensors(BytesIO(data.rest), data.tensors).load() if isinstance(data, Packed) else data


MOST_SENT = 100
"""Tensors sent one by one: each takes a file descriptor, of which a process is handed at most about 250."""


@dataclass(frozen=True)
class Joined:
    """An object with all of its tensors that are of one type in one."""

    flat: dict[torch.dtype, Tensor]
    shapes: list[tuple[torch.dtype, torch.Size]]
    rest: bytes


def join(thing: Any) -> Any:
    """Join the tensors of an object of more than `MOST_SENT`; return any other one as it is.

    So are those whose tensors are more than values (of other classes, with a gradient, on a device), or
    overlap so much that they take far more memory when each has its own.
    """
    tensors = list[Tensor]()
    try:
        _WithoutTensors(Nowhere(), tensors).dump(thing)
    except Exception:  # of any kind: classes pickle themselves
        return thing
    if len(tensors) <= MOST_SENT or not all(map(_is_plain, tensors)):
        return thing
    storages = {each.data_ptr(): each.nbytes() for each in map(Tensor.untyped_storage, tensors)}
    if sum(each.nbytes for each in tensors) > 2 * sum(storages.values()):
        return thing
    tensors, rest = [], BytesIO()
    _WithoutTensors(rest, tensors).dump(thing)
    types = {each.dtype for each in tensors}
    flat = {kind: torch.cat([each.reshape(-1) for each in tensors if each.dtype == kind]) for kind in types}
    return Joined(flat, [(each.dtype, each.shape) for each in tensors], rest.getvalue())


def _is_plain(tensor: Tensor) -> bool:
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return dense and type(tensor) is Tensor and not tensor.requires_grad


def separate(thing: Any) -> Any:
    """Undo `join`; tensors share the memory of the joined ones."""
    if not isinstance(thing, Joined):
        return thing
    sizes = {kind: [shape.numel() for each, shape in thing.shapes if each == kind] for kind in thing.flat}
    parts = {kind: iter(flat.split(sizes[kind])) for kind, flat in thing.flat.items()}
    tensors = [next(parts[kind]).view(shape) for kind, shape in thing.shapes]
    return _WithTensors(BytesIO(thing.rest), tensors).load()


class _WithoutTensors(pickle.Pickler):
    def __init__(self, file: BytesIO | Nowhere, tensors: list[Tensor]) -> None:
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
