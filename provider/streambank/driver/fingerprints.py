"""Fingerprints of what a query was run with, so that a savepoint can tell later whether that has changed.

Arguments and settings may hold secrets: the fingerprints are digests of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streambank.driver.spec import sha256_of


def application_fingerprint(application: Path, args: Sequence[str]) -> dict[str, Any]:
    """Its path, with digests of its file (None where that cannot be read here) and its arguments."""
    try:
        digest = sha256_of(application.read_bytes())
    except OSError:
        digest = None
    return {"path": str(application), "digest": digest, "args_digest": sha256_of("\0".join(args).encode())}


def conf_fingerprint(conf: Mapping[str, str]) -> dict[str, Any]:
    """The names of the declared settings, and a digest of names and values."""
    lines = "".join(f"{name}={conf[name]}\n" for name in sorted(conf))
    return {"names": sorted(conf), "digest": sha256_of(lines.encode())}
