"""Spark's own checksums: visible `<name>.crc` files with the CRC-32C and the size of the file beside them.

Spark 4.1 and later write them; without this check a file that was damaged before it was saved would be
found only when Spark refuses it.

CRC-32C is computed with the standard library alone. The checksum is a remainder of polynomials over GF(2). A
byte-wise table does 10 MB/s in Python; here the message is one big integer, halved again and again: its first
half is multiplied by a 32-bit constant and added to the second, which leaves the remainder as it is. Each
halving is some 16 shifts and exclusive-ors of big integers, which Python does at memory speed: about 100
MB/s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache

from streambank.core.errors import IntegrityError
from streambank.core.json_text import loads
from streambank.repository.manifest import FileEntry
from streambank.repository.repository import Repository

_SUFFIX = ".crc"


def disagreements(repository: Repository, entries: Mapping[str, FileEntry]) -> Iterator[tuple[str, str]]:
    """Files that are not what Spark's checksums say, of objects that are whole, each with what was seen."""
    for path, checksum in entries.items():
        main = entries.get(path.removesuffix(_SUFFIX)) if path.endswith(_SUFFIX) else None
        if main is None or path.rpartition("/")[2].startswith("."):
            continue
        try:
            expected = _parse(repository.objects.read(checksum.digest))
        except ValueError as error:
            yield path, f"{path} is not a checksum as Spark writes them: {error}."
            continue
        if expected is None:
            continue
        value, size_bytes = expected
        try:
            found = crc32c_of_chunks(repository.objects.chunks(main.digest))
        except IntegrityError as error:
            yield main.path, error.message
            continue
        if size_bytes != main.size_bytes:
            yield main.path, f"{main.path} has {main.size_bytes} bytes, and {path} says {size_bytes}."
        elif found != value:
            yield main.path, f"{main.path} has the CRC-32C {found:08x}, and {path} says {value:08x}."


def checksum_of(data: bytes, before: bytes) -> bytes:
    """Spark's checksum of a file that was written again; what else the one before says stays.

    Raises:
        ValueError: `before` is no checksum as Spark writes them.
    """
    if _parse(before) is None:
        return before
    value = crc32c(data)
    signed = value - (1 << 32) if value >> 31 else value
    fields = {**loads(before), "value": signed, "mainFileSize": len(data)}
    return json.dumps(fields, separators=(",", ":")).encode()


def _parse(data: bytes) -> tuple[int, int] | None:
    """CRC-32C and size that a checksum file names; None for an algorithm that is not known."""
    fields = loads(data)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    if fields.get("algorithm") != "CRC32C":
        return None
    value, size_bytes = fields.get("value"), fields.get("mainFileSize")
    if not isinstance(value, int) or not isinstance(size_bytes, int):
        raise ValueError("it names no value or no size")
    return value & 0xFFFFFFFF, size_bytes  # Java writes a signed integer


_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, lowest bit first; RFC 3720, appendix B.4."""
_SMALL_BYTES = 64


def crc32c(data: bytes, value: int = 0) -> int:
    """The CRC-32C of bytes, after bytes whose CRC-32C is `value`."""
    state = value ^ 0xFFFFFFFF
    if len(data) > _SMALL_BYTES:
        data = _folded(data, state)
        state = 0
    for byte in data:
        state = (state >> 8) ^ _table()[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def crc32c_of_chunks(chunks: Iterable[bytes]) -> int:
    """The CRC-32C of bytes that come in chunks."""
    value = 0
    for chunk in chunks:
        value = crc32c(chunk, value)
    return value


def _folded(data: bytes, state: int) -> bytes:
    """A short message with the same remainder, to be finished with a state of 0."""
    # Bit p of an n-bit integer stands for x^(n-1-p): the first bytes are the low bits with high powers.
    message = int.from_bytes(data, "little") ^ state
    bits = 8 * len(data)
    while bits > 8 * _SMALL_BYTES:
        first_bits = (bits - 32) // 2 // 8 * 8
        rest_bits = bits - first_bits
        first = message & ((1 << first_bits) - 1)
        # first * x^rest has the remainder of first * (x^rest mod P), which is 31 bits longer than first
        product = _product(first, _power_of_x(rest_bits))
        message = (message >> first_bits) ^ (product << (rest_bits - first_bits - 31))
        bits = rest_bits
    return message.to_bytes(bits // 8, "little")


def _product(value: int, constant: int) -> int:
    product = 0
    while constant:
        lowest = constant & -constant
        product ^= value << (lowest.bit_length() - 1)
        constant ^= lowest
    return product


@lru_cache(maxsize=1024)
def _power_of_x(exponent: int) -> int:
    """The remainder of x^exponent, as 32 bits with x^31 in the lowest."""
    result, base = 1 << 31, 1 << 30  # 1 and x
    while exponent:
        if exponent & 1:
            result = _product_modulo(result, base)
        base = _product_modulo(base, base)
        exponent >>= 1
    return result


def _product_modulo(left: int, right: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = (right >> 1) ^ (_POLYNOMIAL if right & 1 else 0)
    return product


@cache
def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        table.append(state)
    return tuple(table)
