"""On which line of a TOML text each key stands, which the standard library's parser does not tell.

Only texts that `tomllib` has parsed are scanned, so the scanner may take the syntax for granted.
"""

from __future__ import annotations

import tomllib

Path = tuple[str, ...]


class TomlLines:
    """The lines of the keys of one text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._scan(text)

    def line(self, path: Path) -> int | None:
        """The line, from 1, of a key or of the nearest table around it; None without either."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None

    def has(self, path: Path) -> bool:
        """Whether the key itself stands somewhere."""
        return path in self._lines

    def _scan(self, text: str) -> None:
        table: Path = ()
        position, line = 0, 1
        while position < len(text):
            character = text[position]
            if character == "\n":
                line += 1
            if character in " \t\r\n":
                position += 1
            elif character == "#":
                position = _end_of_line(text, position)
            elif character == "[":
                end = _end_of_header(text, position)
                table = _split(text[position:end].strip("[] \t"))
                self._remember(table, line)
                position = end
            else:
                end = _find_outside_quotes(text, position, "=")
                self._remember(table + _split(text[position:end].strip()), line)
                after = _end_of_value(text, end + 1)
                line += text.count("\n", position, after)
                position = after

    def _remember(self, path: Path, line: int) -> None:
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], line)


def _split(key: str) -> Path:
    """`a."b.c".d` as its parts: what the parser makes of it, one key deep after the other."""
    parts: list[str] = []
    value = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((name, value),) = value.items()
        parts.append(name)
    return tuple(parts)


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _end_of_header(text: str, position: int) -> int:
    end = _find_outside_quotes(text, position, "]")
    return end + (2 if text.startswith("]]", end) else 1)


def _find_outside_quotes(text: str, position: int, wanted: str) -> int:
    while text[position] != wanted:
        position = _end_of_string(text, position) if text[position] in "\"'" else position + 1
    return position


def _end_of_string(text: str, position: int) -> int:
    """The position after the string that begins here."""
    quote = text[position]
    if text.startswith(quote * 3, position):
        position += 3
        while not text.startswith(quote * 3, position):
            position += 2 if text[position] == "\\" and quote == '"' else 1
        position += 3
        # Up to two quotes before the closing three belong to the string itself.
        while position < len(text) and text[position] == quote:
            position += 1
        return position
    position += 1
    while text[position] != quote:
        position += 2 if text[position] == "\\" and quote == '"' else 1
    return position + 1


def _end_of_value(text: str, position: int) -> int:
    """The position after the value: the end of its line, many lines down in an array or a string."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character in "\"'":
            position = _end_of_string(text, position)
            continue
        if character == "#":
            position = _end_of_line(text, position)
            continue
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "\n" and depth == 0:
            return position
        position += 1
    return position
