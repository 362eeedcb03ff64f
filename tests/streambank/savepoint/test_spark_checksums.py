from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streambank.savepoint.spark_checksums import crc32c, crc32c_of_chunks


def by_bits(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_known_values() -> None:
    # RFC 3720, appendix B.4, and the catalogue's check value
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@given(st.binary(max_size=600), st.integers(0, 600))
def test_equals_the_definition_however_it_is_cut(data: bytes, cut: int) -> None:
    assert crc32c(data) == by_bits(data)
    assert crc32c_of_chunks([data[:cut], data[cut:]]) == by_bits(data)


def test_long_messages() -> None:
    data = bytes(range(251)) * 400
    assert crc32c(data) == by_bits(data)
