"""Which place stands for the one that an application names, where its launch redirects a query."""

from __future__ import annotations

from collections.abc import Mapping

from streambank.control.marker import service_name
from streambank.core.errors import RefusedError
from streambank.driver.outputs import FILES, TABLE, UNREAD, Output
from streambank.sinks.redirect import Redirect

SCRATCH = "scratch"
"""The kind of an output whose batches are kept as Parquet, whatever sink the application names."""
_BY_DIRECTORY = frozenset({FILES, "delta"})
"""Kinds whose directory is all that names them."""
_UNKNOWN = frozenset({"foreach", "foreachBatch"})
"""Kinds whose places only the application's own function knows."""


def place_for(outputs: Mapping[str, str], output: Output) -> str | None:
    """The directory that stands for an output; None where none does.

    Args:
        outputs: As those of a `Redirect`.
        output: Where an application would write.
    """
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
        called: The query, for the message.

    Raises:
        RefusedError: It would not (code `sink-not-redirected`).
    """
    redirected(Redirect(outputs=outputs), output, called)


def redirected(redirect: Redirect, output: Output, called: str) -> Output:
    """Where a query writes instead of where its application says.

    Args:
        redirect: The places of its launch.
        output: Where it would write, as its application says.
        called: The query, for the message.

    Returns:
        The output itself where its kind keeps nothing (console, memory, noop).

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


def _refusal(called: str, output: Output, why: str) -> RefusedError:
    return RefusedError(
        f"Query {called} is a copy and may not write to {output}, and {why}.",
        code="sink-not-redirected",
        hint="The copy was not started, and the live output is as it was. A query that writes by a format, a "
        "table or a topic can be redirected.",
    )
