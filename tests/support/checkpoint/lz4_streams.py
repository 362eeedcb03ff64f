"""Streams of LZ4 blocks whose bytes are stored as they are."""

from __future__ import annotations

import struct


def stored(*chunks: bytes) -> bytes:
    """LZ4Block framing with stored blocks."""
    blocks = [struct.pack("<8sBiii", b"LZ4Block", 0x15, len(part), len(part), 0) + part for part in chunks]
    return b"".join(blocks) + struct.pack("<8sBiii", b"LZ4Block", 0x15, 0, 0, 0)
