"""Pickles of numpy arrays and plain containers.

`pickle.load` runs whatever a pickle names. This unpickler knows the few names that arrays are built from,
under the module names of numpy 1 and 2, and refuses all others, so that no code of a downloaded file runs.
"""

from __future__ import annotations

import pickle
from typing import IO, Any

from parashot.data.archives import is_html
from parashot.errors import DataError

_ADMITTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),  # bytes, as protocol 2 of Python 3 writes them
    ("collections", "OrderedDict"),
}


class _RefusedError(Exception):
    """The pickle names something that no array is built from."""


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core.", "numpy._core.")
        if (module, name) not in _ADMITTED:
            raise _RefusedError(f"{module}.{name}")
        return super().find_class(module, name)


def load_arrays(file: IO[bytes], where: str) -> Any:
    """Load a pickle of arrays and plain containers; byte strings of Python 2 become text.

    Raises `DataError`, naming `where`, on a pickle that asks for anything else and on a damaged one.
    """
    if is_html(file.read(1024)):
        raise DataError(f"{where}: an HTML page, not a pickle; the host refused the download: get it again")
    file.seek(0)
    try:
        return _ArrayUnpickler(file, encoding="latin1").load()
    except _RefusedError as error:
        raise DataError(f"{where}: asks for {error}, which is no array; get it elsewhere") from error
    except OSError:
        raise
    except Exception as error:  # on malformed bytes, pickle and numpy raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: not a whole pickle of arrays ({reason}); get it again") from error
