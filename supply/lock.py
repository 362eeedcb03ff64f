"""What requirements.lock pins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-boot.lock")
_HASH = "--hash=sha256:"


@dataclass(frozen=True)
class Pin:
    """One package at one version.

    Attributes:
        name: Its name.
        version: Its version.
        hashes: SHA-256 of each file that may be installed, in hex.
        marker: For which interpreters and systems; empty for all.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: str


def pins(root: Path = ROOT) -> Iterator[Pin]:
    """Each pinned package, in the order of the files."""
    for name in LOCKS:
        for line in (root / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            text = line.partition("#")[0].strip()
            if text:
                wanted, *hashes = (part.strip() for part in text.split(_HASH))
                pinned = Requirement(wanted)
                version = str(pinned.specifier).removeprefix("==")
                yield Pin(pinned.name, version, tuple(hashes), str(pinned.marker or ""))
