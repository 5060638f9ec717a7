"""The errors a user sees: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import errno

from parashot.plain import line
from parashot.secrets import without_secrets


class ParashotError(Exception):
    """Base of every error whose message is meant for the user: it is shown without a traceback.

    Whatever names and texts of others the message holds, it is one line, with what cannot be printed escaped
    and secrets cut out: it may end up in a log, a record or the report.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(line(without_secrets(message)))


class ParamsError(ParashotError):
    """A key of params.yaml is unknown, missing, of the wrong type, or out of range."""


class UsageError(ParashotError):
    """An argument of a command is not what it should be."""


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


_FULL = {errno.ENOSPC, errno.EDQUOT}
_ADVICE = {
    errno.EACCES: "no permission for {}; change its mode or owner, or work in another folder",
    errno.EPERM: "no permission for {}; change its mode or owner, or work in another folder",
    errno.EROFS: "{} is on a read-only file system; mount it for writing, or work in another folder",
    errno.EFBIG: "{} grows larger than a file may be here; raise the limit (ulimit -f) and run again",
    errno.EISDIR: "{} is a folder, and a file is needed there; move it away, or name another place",
    errno.ENOTDIR: "{}: a folder is needed there, and a file is in its place; move that away",
    errno.EEXIST: "{} is there already; move it away, or name another place",
}
"""What to do about an error of the system that names a file."""


def one_line(error: BaseException) -> str:
    """Say `error` in one line; system errors get the advice their errno calls for."""
    if isinstance(error, OSError) and error.errno in _FULL:
        where = f" while writing {error.filename}" if error.filename else ""
        return f"the disk is full{where}; free some space and run again (nothing half-written is left behind)"
    if isinstance(error, OSError) and error.errno in _ADVICE and error.filename:
        return line(_ADVICE[error.errno].format(error.filename))
    return line(" ".join(without_secrets(str(error)).split())) or type(error).__name__
