"""Stage `hardware`: what this machine is.

Timing stages depend on it, so that they run again on another one.
"""

from parashot.hardware import inspect_hardware
from parashot.records import write_result
from stages.common import HARDWARE, stage


def main() -> None:
    write_result(HARDWARE, inspect_hardware())


if __name__ == "__main__":
    stage(main)
