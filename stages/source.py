"""Stage `source`: a fingerprint of the local archive, of which DVC itself sees no more than the path."""

import json

from parashot.data.sources import fingerprint
from parashot.files import write_text
from stages.common import SOURCE, params, root, stage


def main() -> None:
    write_text(SOURCE, json.dumps(fingerprint(params().data, root()), indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    stage(main)
