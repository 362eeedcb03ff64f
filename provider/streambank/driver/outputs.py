"""Whether a query goes on in the output that it wrote to before: by its arguments, and by its application.

The launcher knows no more than the arguments. The driver asks again when the application starts the query,
before Spark writes anything. Everything here only looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streambank.checkpoint.position import batches_of
from streambank.control.generations import Generation
from streambank.core.errors import (
    FormatError,
    InputError,
    NotFoundError,
    RefusedError,
    StreambankError,
)
from streambank.core.names import MAIN
from streambank.driver.preflight import DeclaredQuery
from streambank.driver.spec import read_launch
from streambank.sinks.file.log import LOG_DIRECTORY, list_log
from streambank.storage import normalize_location, open_store, scheme_of, service_name

FILES = "files"
"""The kind of an output that Spark's file sink writes, whatever the format."""
UNREAD = frozenset({"console", "memory", "noop"})
"""Kinds of outputs that keep nothing: a query may move from one of them to any other."""
TABLE = "table"
_NEVER_FILES = UNREAD | {"foreach", "foreachBatch", "kafka"}
"""Kinds that Spark never writes by its file sink, whatever the settings."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a query is to write, as its application says before it starts.

    Attributes:
        kind: `files` for Spark's file sink; `foreachBatch`, `foreach`, `table`, or the format.
        path: Its directory as a URI; None where it has none.
        name: The table or the topic; None where it has none.
        located: The directory of a table of a file format, which Spark writes by its file sink; None where
            that is not known. It is not recorded: a table has it only once it exists.
    """

    kind: str
    path: str | None = None
    name: str | None = None
    located: str | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, str | None]:
        """As the records of a query carry it."""
        return {"kind": self.kind, "path": self.path, "name": self.name}

    def __str__(self) -> str:
        where = self.path or self.name
        return f"{self.kind} {where}" if where else self.kind


# The output, as the arguments of a launch name it.


def check_arguments(query: DeclaredQuery, generation: Generation, args: Sequence[str], folder: str) -> None:
    """Make sure that the arguments, in the driver's folder, name no output where the query must not go on.

    Raises:
        RefusedError: A restore took the query away from an output that they name (code `old-sink`); or they
            name its old output, whose log has batches, and its checkpoint begins from nothing (`sink-used`);
            or another one stands where it stood at the last launch (`sink-changed`).
    """
    said = {service_name(place) for arg in args for place in places_of(arg, folder)}
    for old, new in generation.new_sinks.items():
        if service_name(old) in said:
            raise RefusedError(
                f"An argument of job {query.job} names the output directory {old}, but its generation "
                f"{generation.number} was restored to write to {new}.",
                code="old-sink",
                hint="Declare the new directory and start again. To go on in the old one, restore a "
                "savepoint of it without a new sink.",
            )
    known = query.facts.get("sink_path") or _marked_sink(query)
    try:
        if isinstance(known, str) and service_name(known) in said:
            check_not_used(query, known, generation.location)
        elif isinstance(known, str):
            _check_not_moved(query, generation, args, folder, known)
    except RefusedError:
        raise
    except StreambankError:
        return  # the log cannot be read from here; the driver asks again


def _marked_sink(query: DeclaredQuery) -> str | None:
    marker = query.marker
    return None if marker is None else marker.sink_path


def _check_not_moved(
    query: DeclaredQuery, generation: Generation, args: Sequence[str], folder: str, old: str
) -> None:
    """Compare with the last launch: where its arguments named the output, these may name another one."""
    facts = query.facts
    if facts.get("generation") != generation.number or facts.get("launch_id") is None:
        return
    try:
        launched = read_launch(query.control, str(facts["launch_id"])).args
    except (NotFoundError, FormatError):
        return  # pruned, or of another version: the driver asks again
    if len(launched) != len(args):
        return
    for was, now in zip(launched, args, strict=True):
        if was != now and service_name(old) in map(service_name, places_of(was, folder)):
            for place in list(places_of(now, folder))[-1:]:
                _check_goes_on(query, Output(FILES, old), place, generation, restored=False)


def check_not_used(query: DeclaredQuery, output: str, checkpoint: str) -> None:
    """Begin nothing from nothing in an output whose log has batches: Spark skips them in silence.

    Raises:
        RefusedError: The log has batches, and the checkpoint none (code `sink-used`).
        StreambankError: The log cannot be read: Spark may reach it by its own means.
    """
    newest = _newest(output) if batches_of(checkpoint).planned is None else None
    if newest is None:
        return
    raise RefusedError(
        f"Query {query.called} would begin at batch 0 in the empty checkpoint {checkpoint}, but the log of "
        f"its output {output} has batches up to {newest}: Spark would drop what it writes in batches 0 to "
        f"{newest}, without an error.",
        code="sink-used",
        hint=_as_one_query(query, output, checkpoint)
        or "Restore a savepoint into the job's next generation, or name another output. To begin again in "
        f"this one, move its {LOG_DIRECTORY} away: its readers then see only what is written from then on.",
    )


def _as_one_query(query: DeclaredQuery, output: str, checkpoint: str) -> str:
    """What to do where the output was begun before the job declared its queries; empty where it was not."""
    one = query.checkpoint.rpartition("/")[0]
    wrote = (query.control.query_facts(MAIN) or {}).get("sink_path")
    if query.name == MAIN or service_name(wrote) != service_name(output) or batches_of(one).planned is None:
        return ""
    return (
        f"The job wrote it before it declared several queries, as its only one, whose checkpoint is {one}. "
        "To go on from there, move all that lies in that directory, but the folders of declared queries, "
        f"into {checkpoint} while no driver runs: metadata, offsets, commits, and sources and state if they "
        "are there. To begin again, name another output."
    )


def places_of(arg: str, folder: str) -> Iterator[str]:
    """What an argument may mean as a location: all of it, or what stands behind the first equals sign."""
    for text in (arg, arg.partition("=")[2]):
        if text:
            try:
                yield normalize_location(text if scheme_of(text) != "file" else _absolute(text, folder))
            except InputError:
                continue  # it is no location


def _absolute(text: str, folder: str) -> str:
    return text if text.startswith("file:") else str(Path(folder, text))


def _newest(output: str) -> int | None:
    return max((name.batch for name in list_log(open_store(output))), default=None)


# The output, as the application names it when it starts a query.


def check_output(query: DeclaredQuery, generation: Generation, output: Output) -> str | None:
    """Make sure that a query may write where its application says, before Spark starts it.

    A sink that is recorded for a query never changes silently: another kind of sink needs another generation,
    another directory of a file sink a log that the query can go on from.

    Returns:
        Why the log of its file sink could not be asked: the driver may have no means to read there but
        Spark's own. None where nothing is to be asked, or it was.

    Raises:
        RefusedError: It was restored to write elsewhere (code `old-sink`), would begin from nothing in an
            output whose log has batches (`sink-used`), or writes elsewhere than before (`sink-changed`).
    """
    refuse_left(output.path or output.located, generation.new_sinks)
    facts = query.facts
    before = _recorded(facts, output)
    if before is not None and before.kind not in UNREAD and generation.number == facts.get("generation"):
        _check_same(query, before, output)
    if output.kind != FILES:
        return _check_log(query, generation, output)
    if output.path is None:
        return None
    moved = before is not None and service_name(before.path) != service_name(output.path)
    try:
        check_not_used(query, output.path, generation.location)
        if before is not None and moved:
            restored = generation.number != facts.get("generation")
            _check_goes_on(query, before, output.path, generation, restored)
    except RefusedError:
        raise
    except StreambankError as error:
        if moved and service_name(output.path) not in map(service_name, generation.new_sinks.values()):
            raise
        return error.message
    return None


def left_for(place: str | None, new_sinks: Mapping[str, str]) -> str | None:
    """What a query was restored to write to (`new_sinks`: by what it left), where `place` is what it left."""
    if place is None:
        return None
    return next((new for old, new in new_sinks.items() if service_name(old) == service_name(place)), None)


def refuse_left(place: str | None, new_sinks: Mapping[str, str]) -> None:
    """Refuse the output from which a restore took a query away.

    It may have later batches, and Spark skips in silence what the query writes again under their numbers.

    Raises:
        RefusedError: `place` is such a one (code `old-sink`).
    """
    new = left_for(place, new_sinks)
    if new is not None:
        raise RefusedError(
            f"The query would write to {place}, but it was restored to write to {new}.",
            code="old-sink",
            hint="Let the application write to the new one. To use the old one, restore a savepoint of it.",
        )


def _check_log(query: DeclaredQuery, generation: Generation, output: Output) -> str | None:
    """What `check_not_used` asks, of an output that Spark may write by its file sink all the same.

    It does so with a table of a file format, and with a format that the application names by its class.
    """
    place = output.located if output.located is not None else _known_log(query, output)
    if place is None:
        return None
    try:
        check_not_used(query, place, generation.location)
    except RefusedError:
        raise
    except StreambankError as error:
        return error.message
    return None


def _known_log(query: DeclaredQuery, output: Output) -> str | None:
    """The directory of the file sink by which this very output was written before; None where none was."""
    if output.kind in _NEVER_FILES:
        return None
    facts = query.facts
    known = facts.get("sink_path") or _marked_sink(query)
    if not isinstance(known, str):
        return None
    if output.kind != TABLE:
        return known if service_name(known) == service_name(output.path) else None
    said = facts.get("output")
    if facts.get("sink_path") and isinstance(said, dict) and said.get("kind"):
        return known if (said["kind"], said.get("name")) == (TABLE, output.name) else None
    # A table's directory has its name, in small letters, where the application names no other one.
    table = (output.name or "").rpartition(".")[2].strip("`").lower()
    return known if known.rpartition("/")[2].lower() == table else None


def recorded_output(facts: Mapping[str, Any], said: str = "output") -> Output | None:
    """Where a query wrote last, as its application named it; None where its driver did not record it.

    Args:
        said: Which fact: `output`, or `redirected_from` of a copy: where its application would write.
    """
    found = facts.get(said)
    if not isinstance(found, Mapping) or not found.get("kind"):
        return None
    kind = str(found["kind"])
    path = facts.get("sink_path") if kind == FILES and said == "output" else None
    return Output(kind, path or found.get("path"), found.get("name"))


def _recorded(facts: Mapping[str, Any], output: Output) -> Output | None:
    """Where a query wrote last; None where that is not known.

    An older version recorded Spark's sink alone, and Spark has its file sink for tables and for formats of
    any name, too: then only what is certain counts.
    """
    if facts.get("query_id") is None:
        return None
    known, path = recorded_output(facts), facts.get("sink_path")
    if known is not None:
        return known
    if path is not None:
        return Output(FILES, str(path)) if output.kind == FILES or output.kind in _NEVER_FILES else None
    return Output("foreachBatch") if str(facts.get("sink")).startswith("ForeachBatchSink") else None


def _check_same(query: DeclaredQuery, before: Output, output: Output) -> None:
    places = (service_name(before.path), before.name), (service_name(output.path), output.name)
    if before.kind == output.kind and (before.kind == FILES or places[0] == places[1]):
        return
    raise RefusedError(
        f"Query {query.called} would write to {output}, but its checkpoint was written with the sink "
        f"{before}. The new sink would lack the earlier rows, and going back to the old one later would lose "
        "the new rows.",
        code="sink-changed",
        hint="Let it write to the old sink. To move it to another sink on purpose, stop the job with a "
        "savepoint and restore that as its next generation (`streambank restore latest-good --job "
        f"{query.called} --generation`), which may have another sink, or give it a new checkpoint.",
    )


def _check_goes_on(
    query: DeclaredQuery, before: Output, path: str, generation: Generation, restored: bool
) -> None:
    """A file sink that moved: its log must reach as far as the checkpoint, and no further.

    Whoever has just restored a savepoint has said what becomes of an output that is further.
    """
    found = batches_of(generation.location)
    if found.committed is None:
        return
    newest = _newest(path)
    furthest = max(found.planned or 0, found.committed)
    if newest is not None and found.committed <= newest and (restored or newest <= furthest):
        return
    log = "has no log" if newest is None else f"has a log up to batch {newest}"
    old = before.path or str(before)
    raise RefusedError(
        f"Query {query.called} would write to {path}, but has written to {old} up to batch "
        f"{found.committed}, and the new directory {log}: its readers would fail, or miss rows, and the "
        "query would fail later.",
        code="sink-changed",
        hint="Set the old path back. To go on in the new directory, stop the job with a savepoint and "
        f"restore it there: `streambank restore latest-good --job {query.called} --generation --new-sink "
        f"{old}={path}`.",
    )
