"""State files that were cut off or overwritten with zeros, recognized by their two ends alone.

Spark renames a state file into place when it is complete, so such a file was damaged later: by a disk, a
power cut, a full file system, a person. Only what cannot be anything else counts: a stream of LZ4 blocks,
which is Spark's default, without the block that ends it, or a file whose two ends are zeros. Other codecs
write no end mark, so files of theirs are not judged.
"""

from __future__ import annotations

from streambank.checkpoint.state.lz4 import HEADER_BYTES, MAGIC, is_end_mark
from streambank.checkpoint.state.rocksdb import ReadRange

_WHOLE_BYTES = 1 << 14
"""A file up to this size is read at once, since two reads would cost more."""
_HEAD_BYTES = 64
"""A changelog of format 2 and later begins with its version, then the stream."""


def cut_off(path: str, size_bytes: int, read: ReadRange) -> str | None:
    """Why a state file cannot be complete, as half a sentence; None where nothing speaks against it.

    Costs one read of a small file, two reads of a larger one.
    """
    if size_bytes == 0:
        return "is empty"
    if size_bytes <= _WHOLE_BYTES:
        data = read(path, 0, None)
        head, tail = data[:_HEAD_BYTES], data[-HEADER_BYTES:]
    else:
        head = read(path, 0, _HEAD_BYTES)
        tail = read(path, size_bytes - HEADER_BYTES, HEADER_BYTES)
    if not any(head) and not any(tail):
        return "begins and ends with zeros"
    if MAGIC in head and not is_end_mark(tail):
        return "is cut off: it ends without its end mark"
    return None
