"""Sealed JSON: files that carry their own digest, so that any changed byte is found.

A sealed file is valid JSON with one top-level field on a line: `format`, then `digest`, the seal last.

    {
    "format": 1,
    "digest": "blake3",
    "kind": "pin",
    "record_digest": "blake3:..."
    }

The seal is the digest of all bytes before its own line. After it comes the closing brace and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streambank.core.errors import FormatError, IntegrityError, RefusedError
from streambank.core.json_text import loads
from streambank.core.lines import gathered, whole_lines
from streambank.repository.digest import new_hasher
from streambank.storage.store import MAX_RECORD_BYTES

FORMAT = 1
"""The version that is written, and the only one that is read."""
RECORD_SEAL = "record_digest"
_BLOCK_BYTES = 256 << 10
LONGEST_LINE_BYTES = 8 << 20
"""The log entries of all file sinks stand on one line: room for 30,000 of them."""


dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": ")).encode
"""JSON on one line."""
quoted = json.encoder.encode_basestring
"""A string as `dumps` writes it."""


def field_line(name: str, value: object) -> bytes:
    """One top-level field as its line.

    Raises:
        RefusedError: It is longer than readers take (code `record-too-large`).
    """
    line = f"{dumps(name)}: {dumps(value)},\n".encode()
    if len(line) > LONGEST_LINE_BYTES:
        raise RefusedError(
            f"The field {name} would have {len(line)} bytes on its line; readers take {LONGEST_LINE_BYTES}.",
            code="record-too-large",
            hint="A file sink's log has too many entries since its last compacted one: let the query set "
            "spark.sql.streaming.fileSink.log.compactInterval lower.",
        )
    return line


def head_lines(digest_name: str) -> Iterator[bytes]:
    """The lines that each sealed file begins with."""
    yield b"{\n"
    yield field_line("format", FORMAT)
    yield field_line("digest", digest_name)


def seal(lines: Iterable[bytes], seal_name: str, digest_name: str) -> Iterator[bytes]:
    """The lines of a file without its closing brace, some at a time, then its seal and the brace."""
    hasher = new_hasher(digest_name)
    for block in gathered(lines, _BLOCK_BYTES):
        hasher.update(block)
        yield block
    yield _seal_lines(seal_name, digest_name, hasher.hexdigest())


def unseal(chunks: Iterable[bytes], seal_name: str, what: str) -> Iterator[bytes]:
    """The lines of a sealed file after its `format`, one by one.

    Whether they are intact is known only once the iterator has ended.

    Args:
        what: What the file is, for messages: "savepoint b000003-…".

    Raises:
        IntegrityError: It is cut off, or not as it was written (code `record-damaged`).
        FormatError: It is of a format that is not known.
    """
    blocks = _whole_lines(chunks, what)
    beginning = b""
    while beginning.count(b"\n") < 3 and (block := next(blocks, b"")):
        beginning += block
    parts = beginning.split(b"\n", 3)
    opening, version, digest = (part + b"\n" for part in (*parts, b"", b"", b"")[:3])
    if opening != b"{\n":
        raise damaged(what, "it is empty, or not a file of this kind")
    _check_format(version, what)
    name, digest_name = parse_field(digest, what)
    if name != "digest" or not isinstance(digest_name, str):
        raise damaged(what, "it does not say how it is sealed")
    hasher = new_hasher(digest_name)
    hasher.update(opening + version + digest)
    yield digest
    start = f'"{seal_name}": '.encode()
    block = parts[3] if len(parts) > 3 else b""
    while block := block or next(blocks, b""):
        end = 0 if block.startswith(start) else block.find(b"\n" + start) + 1
        found = end > 0 or block.startswith(start)
        body = block[:end] if found else block
        hasher.update(body)
        yield from split_lines(body)
        if found:
            ending, found_ending = _seal_lines(seal_name, digest_name, hasher.hexdigest()), block[end:]
            while len(found_ending) <= len(ending) and (block := next(blocks, b"")):
                found_ending += block
            if found_ending != ending:
                raise damaged(what, "its content has changed since it was written")
            return
        block = b""
    raise damaged(what, "its end is missing")


def encode_record(fields: Mapping[str, object], digest_name: str) -> bytes:
    """A small sealed file with these fields after the head."""
    lines = [*head_lines(digest_name), *(field_line(name, value) for name, value in fields.items())]
    return b"".join(seal(lines, RECORD_SEAL, digest_name))


def decode_record(data: bytes, what: str) -> dict[str, Any]:
    """The fields of a small sealed file, `digest` among them.

    Raises:
        IntegrityError: It is not whole, or not as it was written (code `record-damaged`).
        FormatError: It is of a format that is not known.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise damaged(what, f"it has more than {MAX_RECORD_BYTES} bytes, which no record has")
    return dict(parse_field(line, what) for line in list(unseal((data,), RECORD_SEAL, what)))


def parse_field(line: bytes, what: str) -> tuple[str, Any]:
    """Name and value of a line that holds one top-level field.

    Raises:
        IntegrityError: It holds something else (code `record-damaged`).
    """
    try:
        fields = loads(b"{" + line.rstrip().removesuffix(b",") + b"}")
    except ValueError as error:
        raise damaged(what, "a line of it cannot be read") from error
    if len(fields) != 1:
        raise damaged(what, "a line of it does not hold exactly one field")
    name: str
    ((name, value),) = fields.items()
    return name, value


def split_lines(block: bytes) -> Iterator[bytes]:
    """Lines with their ends; the last may have none."""
    *lines, rest = block.split(b"\n")
    for line in lines:
        yield line + b"\n"
    if rest:
        yield rest


def damaged(what: str, why: str) -> IntegrityError:
    """The error of a sealed file that is not what it was."""
    return IntegrityError(
        f"The {what} is damaged: {why}.",
        code="record-damaged",
        hint="Use another one, or run `streambank repair` to copy it from a replica that has it undamaged.",
    )


def _whole_lines(chunks: Iterable[bytes], what: str) -> Iterator[bytes]:
    """Chunks cut anywhere as blocks of whole lines; the last may lack its end.

    Raises:
        IntegrityError: A line is longer than any can be, or holds a byte that JSON cannot hold, as a file
            with holes does.
    """
    try:
        yield from whole_lines(chunks, LONGEST_LINE_BYTES)
    except ValueError as error:
        raise damaged(what, str(error)) from error


def _check_format(line: bytes, what: str) -> None:
    name, version = parse_field(line, what)
    if name != "format":
        raise damaged(what, "it does not say its format")
    if version != FORMAT:
        raise FormatError(
            f"The {what} is of format {version}, and only format {FORMAT} is known.",
            code="unknown-format",
            hint="A newer Streambank wrote it: upgrade this one.",
        )


def _seal_lines(seal_name: str, digest_name: str, digits: str) -> bytes:
    return f'"{seal_name}": "{digest_name}:{digits}"\n}}\n'.encode()
