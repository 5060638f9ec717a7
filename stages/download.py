"""Stage `download`: the images as they came, verified, in one tar."""

from parashot.data.sources import download
from stages.common import RAW, params, root, scratch, stage


def main() -> None:
    settings = params()
    download(settings.data, settings.seed, root(), scratch() / "download", RAW)


if __name__ == "__main__":
    stage(main)
