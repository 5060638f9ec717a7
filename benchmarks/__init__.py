"""How fast parashot is, against other ways and the limits of this machine: `python -m benchmarks --help`."""
