"""Lines of a file from elsewhere: no more of it is in memory than a line and a chunk.

JSON lines hold no zero bytes, and a file with holes is full of them: it is refused at the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_PIECE_BYTES = 1 << 20


def whole_lines(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Chunks cut anywhere as blocks of whole lines; the last line may lack its end.

    Args:
        most_bytes: How long a line may be. One that ends in the chunk in which it begins is not measured.

    Raises:
        ValueError: A line is longer, or holds a zero byte.
    """
    rest: list[bytes] = []
    size_bytes = 0
    for chunk in chunks:
        if b"\0" in chunk:
            raise ValueError("it holds zero bytes")
        end = chunk.rfind(b"\n") + 1
        first = chunk.find(b"\n") + 1 if rest else 0
        if size_bytes + (first or len(chunk) - end) > most_bytes:
            raise ValueError(f"it has a line of more than {most_bytes} bytes")
        if end:
            yield b"".join((*rest, chunk[:end]))
            rest, size_bytes = [], 0
        rest.append(chunk[end:])
        size_bytes += len(chunk) - end
    if size_bytes:
        yield b"".join(rest)


def pieces(data: bytes) -> Iterator[bytes]:
    """Bytes that are in memory already, in chunks."""
    return (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))


def gathered(parts: Iterable[bytes], least_bytes: int) -> Iterator[bytes]:
    """The same bytes in blocks of so many or more, but for the last: each is worth a write."""
    block: list[bytes] = []
    size_bytes = 0
    for part in parts:
        block.append(part)
        size_bytes += len(part)
        if size_bytes >= least_bytes:
            yield b"".join(block)
            block, size_bytes = [], 0
    if block:
        yield b"".join(block)
