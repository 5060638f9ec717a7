"""`python -m parashot.cli`: the same command where it is not installed."""

import sys

from parashot.cli import main

if __name__ == "__main__":
    sys.exit(main())
