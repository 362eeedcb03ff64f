"""Reading the fields of a declaration, each mistake named with its file, line and field.

`TomlLines` finds the line of each key, which the standard library's parser does not tell. It scans only texts
that the parser has taken, so it may take the syntax for granted.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from streambank.core.environment import fill_in
from streambank.core.errors import InputError, NotFoundError
from streambank.core.python310 import UTC, parse_toml
from streambank.core.units import number_or_none, parse_duration_s
from streambank.core.zones import check_time_zone, time_zone
from streambank.storage import normalize_location, open_store, scheme_of

_MISSPELT = 0.75
"""How alike two names are of which one is taken for the other, misspelt."""
T = TypeVar("T")
C = TypeVar("C", bound=str)

_PRESETS = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_CRON = re.compile(r"[0-9*/,-]+( +[0-9A-Za-z*/,#?-]+){4}")


class Source:
    """A declaration file, as far as messages and relative paths need it.

    Attributes:
        folder: Where relative paths in it are taken from; None where nothing says that.
    """

    def __init__(self, path: str, lines: TomlLines, folder: Path | None) -> None:
        self.path = path
        self.folder = folder
        self.lines = lines

    def has(self, path: tuple[str, ...]) -> bool:
        """Whether the field itself stands there, and is not from `[defaults]`."""
        return self.lines.has(path)

    def called(self, path: tuple[str, ...]) -> str:
        """What messages call a table."""
        return f"[{'.'.join(path)}]"

    def line(self, path: tuple[str, ...]) -> int:
        """The line of a field; that of `[defaults]` where a job got it from there."""
        if path[:1] == ("jobs",) and not self.lines.has(path):
            inherited = ("defaults", *path[2:])
            if len(inherited) > 1 and self.lines.has(inherited):
                path = inherited
        return self.lines.line(path) or 1

    def mistake(self, path: tuple[str, ...], what: str, hint: str = "") -> InputError:
        return InputError(
            f"{self.path}, line {self.line(path)}, {'.'.join(path)}: {what}.",
            code="bad-declaration",
            hint=hint,
        )

    def checked(self, path: tuple[str, ...], check: Callable[[], T]) -> T:
        """What a check gives; where it refuses, that is a mistake in the field."""
        try:
            return check()
        except InputError as error:
            raise self.mistake(path, error.message.rstrip("."), error.hint) from error

    def absolute(self, value: str) -> Path:
        """A path; a relative one is taken from the folder.

        Raises:
            InputError: It is relative, and there is no folder (code `bad-declaration`).
        """
        path = Path(value).expanduser()
        if self.folder is None and not path.is_absolute():
            raise InputError(
                f"{value!r} is a relative path, and nothing says from which folder.",
                code="bad-declaration",
                hint="Write an absolute path or a URI; or `folder`, in a declaration that is no file.",
            )
        return path if self.folder is None else self.folder / path

    def place(self, value: str) -> Path:
        """A path at which something is kept."""
        return self.absolute(value)


class GivenSource(Source):
    """A declaration that stands in no file: one job's fields, as data.

    Args:
        folder: What it names as its folder.
        dag_folder: The folder of the DAG file, for code alone. It may be another one with each version of the
            DAG and on each machine: the job would begin from nothing there, beside its own driver.
    """

    def __init__(
        self, data: Mapping[str, Any], folder: Path | None = None, dag_folder: Path | None = None
    ) -> None:
        super().__init__("", TomlLines(""), folder or dag_folder)
        self._data = data
        self._of_dag = folder is None and dag_folder is not None

    def place(self, value: str) -> Path:
        if self._of_dag and not Path(value).expanduser().is_absolute():
            raise InputError(
                f"{value!r} is a relative path, and the folder of a DAG file may change with its version.",
                code="bad-declaration",
                hint="Write an absolute path or a URI; or the `folder` of the declaration.",
            )
        return self.absolute(value)

    def has(self, path: tuple[str, ...]) -> bool:
        found: Any = self._data
        for name in path[2:]:
            if not isinstance(found, Mapping) or name not in found:
                return False
            found = found[name]
        return True

    def called(self, path: tuple[str, ...]) -> str:
        return ".".join(path[2:]) or "it"

    def line(self, path: tuple[str, ...]) -> int:
        return 0

    def mistake(self, path: tuple[str, ...], what: str, hint: str = "") -> InputError:
        where = "".join(f"{one}: " for one in (".".join(path[2:]),) if one)
        return InputError(f"Declaration of job {path[1]}: {where}{what}.", code="bad-declaration", hint=hint)


def expand(value: Any, source: Source, path: tuple[str, ...], variables: Mapping[str, str]) -> Any:
    """Every string with its variables filled in (core/environment.py).

    What reaches a Kafka cluster or a table is left as it is: it holds secrets, which are read only where
    that is asked (kafka/settings.py, sinks/declared.py).

    Raises:
        InputError: A variable is not set, or `${` is not closed (code `bad-declaration`).
    """
    if path[-2:] in LOOKED_UP_LATER:
        return value
    if isinstance(value, dict):
        return {name: expand(one, source, (*path, name), variables) for name, one in value.items()}
    if isinstance(value, list):
        return [expand(one, source, path, variables) for one in value]
    if not isinstance(value, str):
        return value

    return fill_in(value, variables, lambda what, hint: source.mistake(path, what, hint))


LOOKED_UP_LATER = (("kafka", "config"), ("sinks", "url"), ("sinks", "catalog"), ("sinks", "options"))
"""What may name a secret of the environment."""


class Fields:
    """One table of the declaration. Each field is read once; `done` refuses what nobody has read."""

    def __init__(self, data: Mapping[str, Any], path: tuple[str, ...], source: Source) -> None:
        self.data = data
        self.path = path
        self.source = source
        self._known: set[str] = set()

    def mistake(self, name: str, what: str, hint: str = "") -> InputError:
        return self.source.mistake((*self.path, name), what, hint)

    def checked(self, name: str, check: Callable[[], T]) -> T:
        """What a check gives; where it refuses, that is a mistake in one of the fields."""
        return self.source.checked((*self.path, name), check)

    def _get(self, name: str, kind: type | tuple[type, ...], wanted: str) -> Any:
        self._known.add(name)
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            # What stands where a table should be may be a table's secret: never repeat it.
            raise self.mistake(
                name, f"it must be {wanted}, not {_kind(value) if kind is dict else repr(value)}"
            )
        return value

    def required(self, name: str, value: T | None) -> T:
        """The value, if it is there.

        Raises:
            InputError: It is not; of a field whose name is misspelt that says more.
        """
        if value is None:
            unread = [one for one in self.data if one not in self._known]
            for near in difflib.get_close_matches(name, unread, 1, cutoff=_MISSPELT):
                raise self.mistake(near, "there is no such field", f"Did you mean {name}?")
            raise self.mistake(name, "it is missing", f"Add {name} to {self.source.called(self.path)}.")
        return value

    def text(self, name: str) -> str | None:
        """A string that is not empty."""
        value: str | None = self._get(name, str, "a string")
        if value == "":
            raise self.mistake(name, "it is empty")
        return value

    def choice(self, name: str, choices: Sequence[C]) -> C | None:
        """One of a few strings."""
        value = self.text(name)
        known = next((one for one in choices if one == value), None)
        if value is not None and known is None:
            raise self.mistake(name, f"{value!r} is not one of its values", f"One of: {', '.join(choices)}.")
        return known

    def texts(self, name: str) -> tuple[str, ...] | None:
        value = self._get(name, list, "a list of strings")
        if value is None:
            return None
        for one in value:
            if not isinstance(one, str):
                raise self.mistake(name, f"it must be a list of strings, and {one!r} is not a string")
        return tuple(value)

    def boolean(self, name: str) -> bool | None:
        value: bool | None = self._get(name, bool, "true or false")
        return value

    def schedule(self, name: str) -> str | None:
        """When something is done: a cron expression of five fields, or one of Airflow's presets."""
        value = self.text(name)
        if value is None or value in _PRESETS or _CRON.fullmatch(value.strip()):
            return value
        hint = 'Write five fields of cron such as "*/10 * * * *", or a preset such as "@hourly".'
        raise self.mistake(name, f"{value!r} is not a schedule", hint)

    def whole(self, name: str, *, minimum: int) -> int | None:
        value: int | None = self._get(name, int, "a whole number")
        if value is not None and value < minimum:
            raise self.mistake(name, f"it must be at least {minimum}, not {value}")
        return value

    def number(self, name: str, *, minimum: float) -> float | None:
        value: float | None = self._get(name, (int, float), "a number")
        if value is None:
            return None
        number = number_or_none(value)  # none where a whole number is larger than any float
        if number is None or number < minimum:
            raise self.mistake(name, f"it must be at least {minimum:g} and finite, not {value}")
        return number

    def moment(self, name: str, zone: str | None) -> datetime | None:
        """A time, in UTC; one that says no time zone is by the clocks of `zone`, if there is one."""
        found = self.data.get(name)
        if isinstance(found, str) and isinstance(self.source, GivenSource):  # JSON has no times
            value: datetime | None = self.parsed(name, _A_TIME, _parse_moment)
        else:
            value = self._get(name, datetime, _A_TIME)
        if value is None:
            return None
        if value.tzinfo is None:
            if zone is None:
                raise self.mistake(
                    name,
                    f"{value.isoformat()} has no time zone",
                    "End it with Z, or +01:00, or declare the job's time_zone.",
                )
            value = value.replace(tzinfo=time_zone(zone))
        return value.astimezone(UTC)

    def time_zone(self, name: str = "time_zone") -> str | None:
        return self.parsed(name, 'a time zone such as "Europe/Berlin"', check_time_zone)

    def parsed(self, name: str, wanted: str, parse: Callable[[str], T]) -> T | None:
        """What a string says to a function that raises `InputError` for what it cannot read."""
        value = self._get(name, str, wanted)
        if value is None:
            return None
        return self.checked(name, lambda: parse(value))

    def duration_s(self, name: str) -> float | None:
        """Seconds of a duration such as "60s", above zero."""
        seconds = self.parsed(name, 'a duration such as "60s"', parse_duration_s)
        if seconds is not None and seconds <= 0:
            raise self.mistake(name, "it must be longer than 0 s")
        return seconds

    def file(self, name: str) -> str | None:
        """An absolute path; a relative one is taken from the declaration's folder."""
        value = self.text(name)
        return None if value is None else self.checked(name, lambda: str(self.source.absolute(value)))

    def interpreter(self, name: str) -> str | None:
        """An interpreter: a name, or a path, whose links stay as they are.

        That of a virtual environment is a link, and finds its packages by its place.
        """
        value = self.text(name)
        if value is None or "/" not in value:
            return value
        return self.checked(name, lambda: str(self.source.absolute(value)))

    def location(self, name: str) -> str | None:
        """A location as a canonical URI; a relative path is taken from the declaration's folder."""
        value = self.text(name)
        return None if value is None else self.as_location(name, value)

    def locations(self, name: str) -> tuple[str, ...] | None:
        """A list of such locations; it may be empty."""
        found = self.texts(name)
        return None if found is None else tuple(self.as_location(name, value) for value in found)

    def as_location(self, name: str, value: str) -> str:
        """A string of field `name` as a canonical URI."""

        def location() -> str:
            relative = scheme_of(value) == "file" and not value.startswith("file:")
            return normalize_location(self.source.place(value) if relative else value)

        return self.checked(name, location)

    def settings(self, name: str) -> dict[str, str]:
        """A table of plain values, as the strings that Spark takes them; `"a.b" = 1` is `a.b = 1`."""
        return self._flatten(self._get(name, dict, "a table") or {}, (*self.path, name), "")

    def _flatten(self, table: Mapping[str, Any], path: tuple[str, ...], prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, one in table.items():
            if isinstance(one, dict):
                found |= self._flatten(one, (*path, key), f"{prefix}{key}.")
            elif isinstance(one, bool):
                found[prefix + key] = "true" if one else "false"
            elif isinstance(one, str | int | float):
                found[prefix + key] = str(one)
            else:
                raise self.source.mistake((*path, key), "it must be a string, a number or a boolean")
        return found

    def table(self, name: str) -> Fields:
        """A table below this one; an empty one where it is not there."""
        return Fields(self._get(name, dict, "a table") or {}, (*self.path, name), self.source)

    def tables(self, name: str) -> tuple[Fields, ...]:
        """A list of tables below this one, counted from 1 in messages; none where it is not there."""
        found = self._get(name, list, "a list of tables") or []
        for one in found:
            if not isinstance(one, dict):
                raise self.mistake(name, f"it must be a list of tables, and {one!r} is not a table")
        return tuple(
            Fields(one, (*self.path, name, str(number)), self.source) for number, one in enumerate(found, 1)
        )

    def table_or_false(self, name: str) -> Fields | None:
        """A table below this one, an empty one where it is not there; None for `false`."""
        if self.data.get(name) is False:
            self._known.add(name)
            return None
        return Fields(self._get(name, dict, "a table, or false") or {}, (*self.path, name), self.source)

    def any_table(self, name: str) -> Mapping[str, Any] | None:
        """A table of whatever fields, kept as it is."""
        value: Mapping[str, Any] | None = self._get(name, dict, "a table")
        return value

    def done(self) -> None:
        """Refuse fields that are not known, with the one that was probably meant."""
        for name in self.data:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, 1)
                known = ", ".join(sorted(self._known))
                raise self.mistake(
                    name, "there is no such field", f"Did you mean {near[0]}?" if near else f"Known: {known}."
                )


_A_TIME = "a time such as 2026-12-01T00:00:00Z"


def _parse_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
    except ValueError:
        hint = "Write date and time, and Z or +01:00 behind it."
        raise InputError(f"{text!r} is not {_A_TIME}.", code="bad-declaration", hint=hint) from None


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", str: "a string", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), "a value of another kind")


def merge(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A job's own fields over the defaults; tables are merged field by field."""
    merged = dict(defaults)
    for name, value in own.items():
        inherited = merged.get(name)
        if isinstance(value, dict) and isinstance(inherited, dict):
            value = merge(inherited, value)
        merged[name] = value
    return merged


def read_text(path: str) -> str:
    """The text of a declaration file, on this machine or (by its URI) in a storage.

    Raises:
        InputError: It cannot be read (code `no-declaration`).
        StorageError: Its storage is not reached.
    """
    try:
        if scheme_of(path) == "file":
            return Path(path).read_text(encoding="utf-8")
        folder, _, name = path.rpartition("/")
        return open_store(folder).read(name).decode()
    except (OSError, UnicodeDecodeError, NotFoundError) as error:
        cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise InputError(
            f"The jobs file {path} cannot be read: {cause.rstrip('.')}.",
            code="no-declaration",
            hint="Name the file with --jobs, or in STREAMBANK_JOBS.",
        ) from error


KeyPath = tuple[str, ...]


class TomlLines:
    """The lines of the keys of one text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        self._scan(text)

    def line(self, path: KeyPath) -> int | None:
        """The line, from 1, of a key or of the nearest table around it; None without either."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None

    def has(self, path: KeyPath) -> bool:
        """Whether the key itself stands somewhere."""
        return path in self._lines

    def _scan(self, text: str) -> None:
        table: KeyPath = ()
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
                key = table + _split(text[position:end].strip())
                self._remember(key, line)
                after = _end_of_value(text, end + 1)
                if text[end + 1 : after].lstrip().startswith("{"):
                    self._remember_inline(key, parse_toml(f"_ = {text[end + 1 : after].lstrip()}")["_"], line)
                line += text.count("\n", position, after)
                position = after

    def _remember_inline(self, path: KeyPath, table: Mapping[str, Any], line: int) -> None:
        for name, value in table.items():
            self._remember((*path, name), line)
            if isinstance(value, dict):
                self._remember_inline((*path, name), value, line)

    def _remember(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], line)


def _split(key: str) -> KeyPath:
    """`a."b.c".d` as its parts: what the parser makes of it, one key deep after the other."""
    parts: list[str] = []
    value = parse_toml(f"{key} = 0")
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
