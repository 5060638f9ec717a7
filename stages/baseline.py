"""Commit dvc.lock: this machine's study is then what `dvc metrics diff` and `dvc exp show` compare with."""

import subprocess
import sys

from stages.tags import git


def main() -> None:
    if not git("status", "--porcelain", "--", "dvc.lock"):
        return
    identity = (
        []
        if git("config", "user.email")
        else ["-c", "user.name=parashot", "-c", "user.email=parashot@localhost"]
    )
    done = subprocess.run(
        ["git", *identity, "commit", "--quiet", "-m", "The study on this machine", "--", "dvc.lock"],
        check=False,
    )
    if done.returncode:
        sys.exit(
            "error: dvc.lock could not be committed; "
            "commit it by hand to make this study the baseline of later runs"
        )
    print(
        "dvc.lock committed: later runs are compared with this study "
        "(make study BASELINE=no leaves git alone)"
    )


if __name__ == "__main__":
    main()
