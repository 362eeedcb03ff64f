"""Tar files of the tests, unpacked on every Python: Debian 12's 3.11.2 has no filters for it yet."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any


def unpack_tar(file: Path, folder: Path) -> None:
    """Unpack everything below a folder, with the files' times.

    Raises:
        ValueError: Something in it is neither a file nor a folder, or lies outside.
    """
    filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    root = folder.resolve()
    with tarfile.open(file) as tar:
        for member in tar.getmembers():
            inside = (root / member.name).resolve().is_relative_to(root)
            if not inside or not (member.isfile() or member.isdir()):
                raise ValueError(f"{file} holds {member.name}, which is not a file or a folder inside it")
        tar.extractall(root, **filtered)
