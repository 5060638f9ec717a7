"""The errors a user sees: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from parashot.plain import line

if TYPE_CHECKING:
    from pydantic import ValidationError


class ParashotError(Exception):
    """Base of every error whose message is meant for the user: it is shown without a traceback.

    The message is one printable line of bounded length, whatever names and texts of others it quotes.
    """

    def __init__(self, message: str = "") -> None:
        if message.startswith("Caught "):  # PyTorch raises that of a loader worker anew, after its traceback
            message = message.strip().rpartition("\n")[2].partition(": ")[2]
        super().__init__(line(message))


class ParamsError(ParashotError):
    """A key of params.yaml is unknown, missing, of the wrong type, or out of range."""


class UsageError(ParashotError):
    """An argument of a command is not what it should be; the exit status is 2, as for a wrong option."""


class TaskError(ParashotError):
    """The user's own training, a file for `parashot measure`, cannot be measured as it is."""


class DataError(ParashotError):
    """Images, archives or splits are not what they should be."""


class RecordError(ParashotError):
    """A result file is missing or is not what it should be."""


class DeviceError(ParashotError):
    """The machine cannot do what was asked of it."""


class PeerError(DeviceError):
    """Another process of the run is gone or does not answer; starting again may help."""


class NonfiniteError(ParashotError):
    """A training has met NaN or infinity, and what it would go on with is worthless."""


class TrackingError(ParashotError):
    """MLflow cannot be told; the results themselves are on disk."""


_ADVICE = {
    errno.ENOENT: "{}: no such file or folder; see whether it is the right path and folder",
    errno.ENOSPC: "the disk is full while writing {}; free some space and run again",
    errno.EDQUOT: "the disk quota is used up while writing {}; free some space and run again",
    errno.EFBIG: "{} grows larger than a file may be here; raise the limit (ulimit -f) and run again",
    errno.EACCES: "no permission for {}; change its mode or owner, or work in another folder",
    errno.EPERM: "no permission for {}; change its mode or owner, or work in another folder",
    errno.EROFS: "{} is on a read-only file system; mount it for writing, or work in another folder",
    errno.EISDIR: "{} is a folder, and a file is needed there; move it away, or name another place",
    errno.ENOTDIR: "{}: a folder is needed there, and a file is in its place; move that away",
    errno.EEXIST: "{} is there already; move it away, or name another place",
}
"""Advice for errors of the file system."""


def one_line(error: BaseException) -> str:
    """Return the message of `error` as one line, with advice where it is an error of the file system."""
    if isinstance(error, OSError) and error.errno in _ADVICE:
        return line(_ADVICE[error.errno].format(error.filename or "a file"))
    return line(" ".join(str(error).split())) or type(error).__name__


def described(error: BaseException) -> str:
    """Return the message of `error` as one line, after its class where it is not meant for the user."""
    known = isinstance(error, ParashotError | OSError)
    return one_line(error) if known else f"{type(error).__name__}: {one_line(error)}"


def first_fault(error: ValidationError) -> str:
    """Return the first fault that pydantic found: the place, what is needed there, and what was found."""
    fault = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, fault["loc"]))
    found = "" if fault["type"] == "missing" else f", found {fault['input']!r}"
    return f"{place}: {fault['msg']}{found}" if place else f"{fault['msg']}{found}"
