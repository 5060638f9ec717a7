"""MLflow's SQLite file: made whole or not at all, and tried out before MLflow is let near it.

MLflow makes its tables in dozens of steps, and refuses for ever a file that was cut off in between. At one
that is locked or damaged it waits for minutes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def file_of(uri: str) -> Path | None:
    """The file that a database's address names; None for a server, and for any other kind of store."""
    from sqlalchemy.engine import make_url

    if not uri.startswith("sqlite"):
        return None
    name = make_url(uri).database
    return None if name in {None, "", ":memory:"} or str(name).startswith("file:") else Path(str(name))


def prepare(file: Path, patience_seconds: float) -> None:
    """Make the database where there is none, and see that it can be written to.

    Raises `sqlite3.Error`, `OSError`, or what SQLAlchemy does where it cannot be made.
    """
    if not file.exists() or file.stat().st_size == 0:
        _make(file)
    with closing(sqlite3.connect(file, timeout=patience_seconds, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def _make(file: Path) -> None:
    """Call it by one process at a time: what one that was killed has left is made anew."""
    from mlflow.store.db.utils import _initialize_tables, create_sqlalchemy_engine

    new = file.with_name(f"{file.name}.new")
    for left in (new, new.with_name(f"{new.name}-journal")):
        left.unlink(missing_ok=True)
    engine = create_sqlalchemy_engine(f"sqlite:///{new}")
    try:
        _initialize_tables(engine)
        engine.dispose()
        new.replace(file)
    finally:
        engine.dispose()
        new.unlink(missing_ok=True)
