"""Stage `source`: a fingerprint of the local archive, of which DVC sees the path alone, or of how to draw."""

import json

from parashot.data.sources import fingerprint
from parashot.files import write_text
from stages.common import SOURCE, params, root, stage


def main() -> None:
    settings = params()
    tree = fingerprint(settings.data, settings.seed, root())
    write_text(SOURCE, json.dumps(tree, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    stage(main)
