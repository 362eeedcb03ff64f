"""Fingerprints of what a query was run with, so that a savepoint can tell later whether that has changed.

Arguments and settings may hold secrets: only their digests are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def application_fingerprint(application: Path, args: Sequence[str]) -> dict[str, Any]:
    """Its path, with digests of its file (None where that cannot be read here) and its arguments."""
    try:
        digest = _digest(application.read_bytes())
    except OSError:
        digest = None
    return {"path": str(application), "digest": digest, "args_digest": _digest("\0".join(args).encode())}


def conf_fingerprint(conf: Mapping[str, str]) -> dict[str, Any]:
    """The names of the declared settings, and a digest of names and values."""
    lines = "".join(f"{name}={conf[name]}\n" for name in sorted(conf))
    return {"names": sorted(conf), "digest": _digest(lines.encode())}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
