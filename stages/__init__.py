"""The DVC stages: thin scripts, run as `python -m stages.NAME`.

Each reads params, calls one function of the library, and writes what dvc.yaml declares.
Only here are argv and DVC's variables read; the library is handed roots and tags.
"""

import os
import sys
from pathlib import Path

SOURCES = str(Path(__file__).resolve().parents[1] / "src")

# An experiment in a temporary workspace runs its own code, also where another checkout is installed.
# So do the loader workers, whose server starts with no path but this variable's.
sys.path.insert(0, SOURCES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH")]))
