"""The server that ranks and workers are forked from, started early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from parashot.lifetime import fork_server
from parashot.parallel.server import start_early

def check():
    sys.exit("wave" not in sys.modules)

if __name__ == "__main__":
    start_early("wave")
    assert not {"torch", "wave"} & sys.modules.keys()
    process = fork_server().Process(target=check)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_a_server_imports_what_its_maker_has_not(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)
