"""A look over a pickle's opcodes before any of them runs: what would it build?

The loader trusts the lengths that a pickle claims, and what it builds is hashed and walked without a bound:
some hundred bytes can ask for gigabytes, for an hour, or for more depth than the stack has. So lengths are
held against the file, and containers must form a tree of bounded depth: each lies in one other. Then nothing
that is built is larger than the file.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from typing import IO, NamedTuple

MAX_BYTES = 16 * 2**30
MAX_OPCODES = 5_000_000
MAX_DEPTH = 50

_READ_AT_ONCE = 2**20
_BY_CODE = {ord(each.code): each for each in pickletools.opcodes}
_CONTAINERS = {"list", "tuple", "dict", "set", "frozenset"}
_NAMES = {"GLOBAL", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"}
_FILLING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}
"""What they take first, or deepest, is what they leave, with more in it."""

_TWO_LINES = {"GLOBAL", "INST"}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}


class _Step(NamedTuple):
    """An opcode, its argument where it is a short number, and where the next one begins."""

    opcode: pickletools.OpcodeInfo
    number: int
    end: int


class _Thing(NamedTuple):
    """What would lie on the stack."""

    depth: int = 0
    is_container: bool = False
    is_name: bool = False  # a class or function


def check_opcodes(file: IO[bytes]) -> None:
    """Read a pickle from `file` to its end. Raises `ValueError` where it would build more than it holds."""
    stack: list[_Thing | None] = []  # None is a mark
    memo: dict[int, _Thing] = {}
    frames, end = 0, 0
    for count, (opcode, number, end) in enumerate(_steps(file)):
        if count >= MAX_OPCODES:
            raise ValueError(f"more than {MAX_OPCODES:,} opcodes")
        if opcode.name == "FRAME":
            frames = max(frames, end + number)
        elif opcode.name in _PUTS or opcode.name == "MEMOIZE":
            place = len(memo) if opcode.name == "MEMOIZE" else number
            if place > count:
                raise ValueError(f"remembers at {place:,}, the memory of a far larger pickle")
            memo[place] = _top(stack)
        elif opcode.name in _GETS or opcode.name == "DUP":
            again = _top(stack) if opcode.name == "DUP" else memo.get(number)
            if again is None or again.is_container:
                raise ValueError("holds a container twice, or in itself")
            stack.append(again)
        else:
            _run(opcode, stack)
    if frames > end:
        raise ValueError("a frame is cut short")


def _run(opcode: pickletools.OpcodeInfo, stack: list[_Thing | None]) -> None:
    """Take from `stack` what `opcode` takes, and put there what it leaves."""
    before = [each.name for each in opcode.stack_before]
    taken: list[_Thing | None] = []
    if "mark" in before or (opcode.name == "POP" and stack and stack[-1] is None):
        while stack and stack[-1] is not None:
            taken.append(stack.pop())
        if not stack:
            raise ValueError("a mark is missing")
        stack.pop()
        before = before[: before.index("mark")] if "mark" in before else []
    for _ in before:
        if not stack:
            raise ValueError("takes what is not there")
        taken.append(stack.pop())
    things = [each for each in taken if each is not None]
    target = things.pop() if opcode.name in _FILLING and things else _Thing()
    if target.is_name:
        raise ValueError("changes a class or function")
    depth = max([target.depth, *(1 + each.depth for each in things)])
    if depth > MAX_DEPTH:
        raise ValueError(f"containers within containers, deeper than {MAX_DEPTH}")
    for each in opcode.stack_after:
        is_container = target.is_container or each.name in _CONTAINERS
        left = _Thing(depth, is_container, opcode.name in _NAMES)
        stack.append(None if each.name == "mark" else left)


def _top(stack: list[_Thing | None]) -> _Thing:
    if not stack or stack[-1] is None:
        raise ValueError("takes what is not there")
    return stack[-1]


def _steps(file: IO[bytes]) -> Iterator[_Step]:
    """Yield the opcodes up to STOP, none of their arguments in memory."""
    position = 0
    while True:
        code = file.read(1)
        opcode = _BY_CODE.get(code[0]) if code else None
        if opcode is None:
            raise ValueError("an opcode is unknown" if code else "cut short")
        number, length = _argument(file, opcode)
        position += 1 + length
        if position > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES // 2**30} GiB")
        yield _Step(opcode, number, position)
        if opcode.name == "STOP":
            return


def _argument(file: IO[bytes], opcode: pickletools.OpcodeInfo) -> tuple[int, int]:
    """Read over the argument; return its value where it is a number of use here, and its length in bytes."""
    if opcode.arg is None:
        return 0, 0
    if opcode.arg.n >= 0:
        return int.from_bytes(_exactly(file, opcode.arg.n), "little"), opcode.arg.n
    if opcode.arg.n == pickletools.UP_TO_NEWLINE:
        first, length = _line(file)
        length += _line(file)[1] if opcode.name in _TWO_LINES else 0
        return (_decimal(first) if opcode.name in {"PUT", "GET"} else 0), length
    width = _width(opcode.arg.n)
    claimed = int.from_bytes(_exactly(file, width), "little")
    left = claimed
    while left:
        left -= len(_exactly(file, min(left, _READ_AT_ONCE)))
    return 0, width + claimed


def _width(kind: int) -> int:
    """Bytes of a length that stands before an argument."""
    return {
        pickletools.TAKEN_FROM_ARGUMENT1: 1,
        pickletools.TAKEN_FROM_ARGUMENT4: 4,
        pickletools.TAKEN_FROM_ARGUMENT4U: 4,
        pickletools.TAKEN_FROM_ARGUMENT8U: 8,
    }[kind]


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("cut short")
    return data


def _line(file: IO[bytes]) -> tuple[bytes, int]:
    """Read over a line; return its beginning and its length."""
    piece = first = file.readline(_READ_AT_ONCE)
    length = len(piece)
    while not piece.endswith(b"\n"):
        piece = file.readline(_READ_AT_ONCE)
        if not piece:
            raise ValueError("cut short")
        length += len(piece)
    return first, length


def _decimal(text: bytes) -> int:
    if not text.strip().isdigit() or len(text) > 20:
        raise ValueError("remembers at no number")
    return int(text)
