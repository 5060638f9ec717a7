"""Secrets that tests plant where people keep theirs, and then look for in all that is written."""

from __future__ import annotations

from pathlib import Path

SECRETS = {
    "MLFLOW_TRACKING_TOKEN": "planted-mlflow-token-c1b7",
    "MLFLOW_TRACKING_PASSWORD": "planted/mlflow+password-88d2",
    "AWS_ACCESS_KEY_ID": "PLANTEDAKIA20ED",
    "AWS_SECRET_ACCESS_KEY": "planted/aws/secret+51fa",
    "AWS_SESSION_TOKEN": "planted-aws-session-0f3e",
    "HF_TOKEN": "planted-hf-token-7d90",
}
"""Environment variables."""

PASSWORD, SIGNATURE, REMOTE_TOKEN = (
    "planted-url-password-ab12",
    "planted-signature-77cc",
    "planted-remote-3e4f",
)
REMOTE = f"https://someone:{REMOTE_TOKEN}@git.invalid/project.git"
ALL = {*SECRETS.values(), PASSWORD, SIGNATURE, REMOTE_TOKEN}


def found_in(text: str) -> set[str]:
    """The secrets in a text."""
    return {each for each in ALL if each in text}


def files_with_secrets(root: Path, *but: str) -> dict[str, set[str]]:
    """Every file below `root` that holds one, but for some folders of it."""
    found = {}
    for file in root.rglob("*"):
        name = file.relative_to(root).as_posix()
        if file.is_file() and not name.startswith(but):
            content = file.read_bytes()
            if held := {each for each in ALL if each.encode() in content}:
                found[name] = held
    return found
