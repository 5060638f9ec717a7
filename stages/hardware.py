"""Stage `hardware`: facts of this machine, on which the stages that measure times depend."""

from parashot.hardware import inspect_hardware
from parashot.records import write_result
from stages.common import HARDWARE, stage


def main() -> None:
    write_result(HARDWARE, inspect_hardware())


if __name__ == "__main__":
    stage(main)
