"""The DVC stages: thin scripts, run as `python -m stages.NAME`.

Each reads params, calls one function of the library, and writes what dvc.yaml declares.
Only here are argv and DVC's variables read; the library is handed roots and tags.
"""

import sys
from pathlib import Path

# An experiment in a temporary workspace runs its own code, also where another checkout is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
