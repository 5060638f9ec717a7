"""Stage `pack`: every image decoded once."""

from parashot.data.pack import pack
from parashot.data.splits import read_split
from stages.common import PACKED, RAW, SPLIT, params, stage


def main() -> None:
    pack(RAW, read_split(SPLIT), PACKED, pack_size=params().data.pack_size)


if __name__ == "__main__":
    stage(main)
