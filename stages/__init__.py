"""DVC's stages: thin scripts, run as `python -m stages.NAME`.

Each reads params, calls one function of the library, and writes what dvc.yaml declares. Only here and in the
command line are argv and DVC's variables read; the library is handed roots, params and tags.
"""

import os
import sys
from pathlib import Path

SOURCES = str(Path(__file__).resolve().parents[1] / "src")

# A temporary experiment runs its own code, also where another checkout is installed. So do its
# loader workers, whose server starts with the path of this variable.
sys.path.insert(0, SOURCES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH")]))
