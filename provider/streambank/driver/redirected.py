"""What a copy of a query may do: the place that stands for its application's own, and what it may read.

Reading changes something, too: a queue hands each message out once, `cleanSource` deletes or moves the files
of a file source, and a `kafka.group.id` is shared with the live query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from streambank.core.errors import RefusedError
from streambank.driver.outputs import FILES, TABLE, UNREAD, Output
from streambank.sinks.redirect import Redirect
from streambank.storage import service_name

SCRATCH = "scratch"
"""The kind of an output whose batches are kept as Parquet, whatever sink the application names."""
SHARED_WITH_THE_LIVE_QUERY = ("cleanSource", "kafka.group.id")
"""Options of a source that reach beyond the query that reads (FileStreamOptions, KafkaSourceProvider)."""
_HARMLESS = re.compile(
    r"(?:file|kafka|rate|delta|iceberg|memory|text|socket|state|avro|csv|json|orc|parquet|xml)"
)
"""How the kinds of sources begin from which reading takes nothing away."""
_BY_DIRECTORY = frozenset({FILES, "delta"})
"""Kinds whose directory is all that names them."""
_UNKNOWN = frozenset({"foreach", "foreachBatch"})
"""Kinds whose places only the application's own function knows."""


def place_for(outputs: Mapping[str, str], output: Output) -> str | None:
    """The directory that stands for an output; None where none does."""
    for old, new in outputs.items():
        if "/" not in old:
            if output.name == old:
                return new
        elif output.path is not None and service_name(output.path) == service_name(old):
            return new
    return None


def check_redirected(outputs: Mapping[str, str], output: Output, called: str) -> None:
    """Make sure that a copy would write elsewhere, before there is one.

    Args:
        outputs: As those of a `Redirect`.
        output: Where the application of the live query writes.

    Raises:
        RefusedError: It would not (code `sink-not-redirected`).
    """
    redirected(Redirect(outputs=outputs), output, called)


def redirected(redirect: Redirect, output: Output, called: str) -> Output:
    """Where a query writes instead of its application's output; the output itself if its kind keeps nothing.

    Raises:
        RefusedError: The launch has no place for it (code `sink-not-redirected`): nothing may start that
            writes to the output of the live query.
    """
    if output.kind in UNREAD:
        return output
    if output.kind in _UNKNOWN:
        raise _refusal(called, output, f"only the function of {output.kind} knows where it writes")
    named = place_for(redirect.outputs, output)
    if named is not None:
        if output.kind in _BY_DIRECTORY:
            return Output(output.kind, named)
        return Output(SCRATCH, f"{named}/{redirect.folder}" if redirect.folder else named)
    if output.kind in _BY_DIRECTORY and redirect.directory is not None:
        return Output(output.kind, redirect.directory)
    if output.kind == TABLE and redirect.table is not None:
        return Output(TABLE, name=redirect.table)
    if output.kind == "kafka" and redirect.topic is not None:
        return Output("kafka", name=redirect.topic)
    if redirect.scratch and redirect.directory is not None:
        return Output(SCRATCH, redirect.directory)
    raise _refusal(called, output, "this launch names no other place for it")


def check_source_kinds(kinds: Sequence[str | None], called: str, allowed: Sequence[str] = ()) -> None:
    """Refuse a copy that may take something from the live query by reading.

    Args:
        kinds: Spark's words for what it reads.
        allowed: Kinds of sources that the job declares as harmless, in Spark's words.

    Raises:
        RefusedError: One of them is not known as harmless (code `source-not-left-alone`).
    """
    for kind in kinds:
        word = str(kind).lower()
        if not _HARMLESS.match(word) and word not in {one.lower() for one in allowed}:
            raise RefusedError(
                f"Query {called} is a copy, and it is not known whether reading the source {kind} takes "
                "something from the live query, as reading a queue does.",
                code="source-not-left-alone",
                hint=f'If it does not, declare it: drill.sources = ["{word}"].',
            )


def reaches_live_query(called: str, option: str) -> RefusedError:
    """The refusal of a copy that cannot leave out an option of `SHARED_WITH_THE_LIVE_QUERY`."""
    return RefusedError(
        f"Query {called} is a copy, and its source has the option {option}, by which it would reach into "
        "what the live query reads.",
        code="source-not-left-alone",
        hint=f"Set {option} by option(...) of the reader instead of in the table: there it can be left out "
        "for a copy.",
    )


def _refusal(called: str, output: Output, why: str) -> RefusedError:
    return RefusedError(
        f"Query {called} is a copy and may not write to {output}, and {why}.",
        code="sink-not-redirected",
        hint="The copy was not started, and the live output is as it was. A query that writes by a format, a "
        "table or a topic can be redirected.",
    )
