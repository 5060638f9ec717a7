"""Servers that ranks and workers are forked from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from parashot.lifetime import fork_server, start_fork_server

def check():
    sys.exit(not {"wave", "torch._dynamo"} <= sys.modules.keys())

if __name__ == "__main__":
    start_fork_server("wave")
    assert "torch" not in sys.modules
    process = fork_server().Process(target=check)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_a_server_imports_what_its_maker_has_not(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)
