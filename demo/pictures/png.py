"""Small PNG files: at most 256 colours, as a page of text and plain areas has nearly by itself."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

COLOURS = 256
EXACT = 160
"""So many of the most frequent colours stay as they are; the others are the most frequent of their kind."""
KIND_BITS = 3
"""By so many bits of red, green and blue colours are of one kind."""
AT_ONCE = 4096


def small_png(width: int, height: int, pixels: bytes) -> bytes:
    """A picture as PNG with a palette.

    Args:
        width: In pixels.
        height: In pixels.
        pixels: Red, green, blue and opacity of each pixel, a byte each, from the top; opacity is not used.
    """
    channels = np.frombuffer(pixels, np.uint8).reshape(-1, 4)[:, :3].astype(np.uint32)
    packed = channels[:, 0] << 16 | channels[:, 1] << 8 | channels[:, 2]
    colours, place, times = np.unique(packed, return_inverse=True, return_counts=True)
    palette = _palette(colours, times)
    indices = _nearest(colours, palette)[place].reshape(height, width)
    # Each line begins with the number of its filter: 0, as it is.
    lines = np.hstack([np.zeros((height, 1), np.uint8), indices]).tobytes()
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", _split(palette).astype(np.uint8).tobytes()),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _palette(colours: NDArray[np.uint32], times: NDArray[np.intp]) -> NDArray[np.uint32]:
    """The most frequent colours, and of the rest the most frequent one of each kind."""
    by_times = colours[np.argsort(-times, kind="stable")]
    if len(by_times) <= COLOURS:
        return by_times
    rest = by_times[EXACT:]
    kinds = _split(rest) >> (8 - KIND_BITS)
    _, first = np.unique(kinds, axis=0, return_index=True)
    return np.concatenate([by_times[:EXACT], rest[np.sort(first)]])[:COLOURS]


def _nearest(colours: NDArray[np.uint32], palette: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """For each colour the place of the one in the palette that is closest to it."""
    target = _split(palette).astype(np.int32)
    found = [
        ((_split(some).astype(np.int32)[:, None] - target) ** 2).sum(axis=2).argmin(axis=1)
        for some in np.split(colours, range(AT_ONCE, len(colours), AT_ONCE))
    ]
    return np.concatenate(found).astype(np.uint8)


def _split(colours: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Red, green and blue of each colour."""
    return np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
