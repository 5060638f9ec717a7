"""The DVC stages: thin scripts that read params, call one function of the library, and write what dvc.yaml declares.

Run as `python -m stages.NAME`. Only here are argv and DVC's variables read; the library is handed roots and tags.
"""

import sys
from pathlib import Path

# An experiment in a temporary workspace runs its own code, also where another checkout is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
