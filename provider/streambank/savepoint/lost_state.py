"""State of which the checkpoint has nothing any more, though the query had it.

By its files alone, a checkpoint whose `state` directory is gone is that of a query without state. Its earlier
savepoints know better, and so does its driver: the stateful operators of a query never change.
"""

from __future__ import annotations

from dataclasses import dataclass

from streambank.checkpoint.shape import Closure
from streambank.core.errors import NotFoundError
from streambank.repository.manifest import Manifest


def lost_operators(closure: Closure, before: Manifest) -> tuple[int, ...]:
    """Ids of the stateful operators that a savepoint of the query has, and a later batch has not.

    A savepoint of another query or a later batch tells nothing.
    """
    if before.query_id != closure.query_id or before.batch > closure.batch:
        return ()
    now = {operator.operator for operator in closure.operators}
    return tuple(sorted({int(operator["operator"]) for operator in before.operators} - now))


@dataclass(frozen=True, slots=True)
class Reported:
    """What the driver of a query said of its state.

    Attributes:
        operators: How many stateful operators the query has: `stateOperators` of Spark's
            `StreamingQueryProgress` has an entry for each.
    """

    query_id: str
    batch: int
    operators: int


def check_state_is_there(closure: Closure, before: Manifest | None, reported: Reported | None = None) -> None:
    """Make sure that a batch has all the state that the query had before it.

    Raises:
        NotFoundError: It has not (code `missing-state-file`).
    """
    there = len(closure.operators)
    if reported is not None and reported.query_id == closure.query_id and there < reported.operators:
        raise _deleted(
            f"The checkpoint has state of {there} stateful operators at batch {closure.batch}, but the "
            f"query's driver reported {reported.operators} with batch {reported.batch}: state was deleted."
        )
    lost = lost_operators(closure, before) if before is not None else ()
    if before is not None and lost:
        raise _deleted(
            f"The checkpoint has no state/{lost[0]} at batch {closure.batch}, but savepoint "
            f"{before.savepoint} of the same query has: the state was deleted."
        )


def _deleted(message: str) -> NotFoundError:
    return NotFoundError(
        message,
        code="missing-state-file",
        hint="A query cannot go on without its state. Stop the job, and restore its newest savepoint.",
    )
