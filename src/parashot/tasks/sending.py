"""What can be sent to a worker process, and which part of an object cannot."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, MethodType
from typing import Any

from parashot.errors import one_line


def cannot_be_sent(thing: object, name: str) -> str:
    """Say which part of `thing`, called `name`, cannot be pickled for a worker, and what to do; or nothing.

    It is pickled as it is when a worker starts, and not kept.
    """
    if (error := _fault(thing)) is None:
        return ""
    seen = {id(thing)}
    while found := next(
        ((at, part) for at, part in _parts(thing) if id(part) not in seen and _fault(part)), None
    ):
        name, thing = name + found[0], found[1]
        error = _fault(thing) or error
        seen.add(id(thing))
    return f"{name}: {_described(thing, error)}"


def _described(thing: object, error: Exception) -> str:
    if isinstance(thing, FunctionType):
        kind = "a lambda" if thing.__name__ == "<lambda>" else f"the inner function {thing.__name__}"
        return f"{kind} cannot be sent to a worker; make it a function of the file"
    kind = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    return (
        f"{kind} cannot be sent to a worker ({one_line(error)}); "
        "make it where it is first needed, in __getitem__, or define its class at the top of the file"
    )


class Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


class _Starting:
    """A worker that is about to start: some objects can be pickled only for one."""

    DupFd = int
    """What a descriptor is sent as."""

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor


def _fault(thing: object) -> Exception | None:
    """What pickling raises."""
    starting: Any = _Starting()
    context.set_spawning_popen(starting)
    try:
        ForkingPickler(Nowhere()).dump(thing)
    except Exception as error:  # of any kind: classes pickle themselves
        return error
    finally:
        context.set_spawning_popen(None)
    return None


def _parts(thing: Any) -> Iterator[tuple[str, object]]:
    """What an object is pickled with, each part with its place."""
    if isinstance(thing, dict):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple):
        yield from ((f"[{number}]", value) for number, value in enumerate(thing))
    elif isinstance(thing, partial):
        yield from ((f".{name}", getattr(thing, name)) for name in ("func", "args", "keywords"))
    elif isinstance(thing, MethodType):
        yield ".__self__", thing.__self__
    yield from ((f".{name}", value) for name, value in _state(thing).items())


def _state(thing: Any) -> dict[str, object]:
    """Attributes that are pickled; none of what pickles itself in another way."""
    try:
        state = thing.__getstate__()
    except Exception:  # as of open files
        return {}
    parts = state if isinstance(state, tuple) else (state,)  # a tuple where the class has __slots__
    return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
