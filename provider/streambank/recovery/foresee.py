"""What speaks against an exchange of a job's state, found before the job is stopped for it.

An exchange makes its new state of the savepoint with which the job was stopped. What that savepoint will be
like can be told from the live checkpoint: its operators, their columns, the provider and the partitions; and
how old the earlier savepoints will be. Whatever is refused here would be refused later, with the job standing
still for it. What only Spark can tell stays with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.rewritable import (
    check_codec,
    check_earlier,
    check_join,
    check_no_limit,
    check_partitions,
    check_state,
    check_strict,
)
from streambank.checkpoint.schema.key import named_fields
from streambank.checkpoint.schema.query import OperatorSchema, read_query_schema
from streambank.checkpoint.schema.store import names_apart
from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, FormatError, InputError, NotFoundError, RefusedError
from streambank.core.units import say_count, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.launch import is_local
from streambank.driver.launchers.choose import launcher_for, placed
from streambank.driver.other_release import check_rewritable, writer_of
from streambank.job.savepoint import place_of
from streambank.job.start import check_launch
from streambank.repository.catalog import SavepointSummary
from streambank.repository.repository import Repository
from streambank.savepoint.view import SavedFiles
from streambank.storage import open_store
from streambank.storage.store import Readable

TOO_YOUNG = "no-such-savepoint"
"""Code of a compaction by idle time for which no savepoint is old enough yet."""

_AS_STORED = ("stateStoreSave", "dedupe", "dedupeWithinWatermark")
"""Operators of which Spark's reader shows the columns that are stored."""

_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Texts and comments of an expression."""
_COLUMN = re.compile(r"(?<![\w.`])(key|value)\s*\.\s*(?:`([^`]+)`|([A-Za-z_]\w*))(?!\s*\()", re.IGNORECASE)


def foresee(
    job: Job,
    query: str | None,
    order: Mapping[str, Any],
    *,
    control: JobControl | None = None,
    repository: Repository | None = None,
    elsewhere: bool = False,
    now: datetime | None = None,
) -> None:
    """Refuse an order on the state of a job that could not be carried out once the job is stopped.

    Only reads. A checkpoint that moves too fast to be read, or is not understood, is left to the stop.

    Args:
        order: What is asked, as JSON (streambank_spark/change/request.py).
        elsewhere: The Spark that does it has Python packages of its own, which cannot be seen from here.

    Raises:
        InputError: The query, an operator or a column does not exist, or has to be named; the state has that
            number of partitions already (code `same-partitions`); or the earlier savepoint is not earlier.
        NotFoundError: The job was never started, has committed nothing, or no savepoint is old enough
            (`no-such-savepoint`).
        RefusedError: There is no state, it has no keys, or its provider, codec, checksums, distribution or
            Spark rule it out.
        StorageError: A package is missing that rewriting this state takes (code `missing-package`).
        StreambankError: The job could not be started again afterwards (`check_launch`).
    """
    records = control or job.records()
    location, _ = place_of(job, records, job.only_query(query))
    desired = records.desired()
    if desired is not None and desired.state == "running":
        where = placed(job)
        check_launch(where, records, launcher_for(where))
    checkpoint = open_store(location)
    try:
        closure = CheckpointReader(checkpoint).closure(None, "minimal")
    except (ConflictError, FormatError, NotFoundError):
        return  # it moves while it is read, or the stop's savepoint will say what is wrong with it
    check_rewritable(closure, writer_of(records, query))
    foresee_state(
        checkpoint, closure, order, elsewhere=elsewhere or not is_local(job.state.master or job.master)
    )
    if order.get("idle_for_s") is not None or order.get("idle_since") is not None:
        _check_age(repository or _opened(job), job.savepoint_name(query), closure, order, now or utc_now())


def foresee_state(
    checkpoint: Readable, closure: Closure, order: Mapping[str, Any], *, elsewhere: bool = False
) -> None:
    """Refuse an order that does not fit some state, by its small files, before Spark is started for it.

    Raises:
        StreambankError: As `foresee`, in so far as it is about the state.
    """
    if order.get("operation") == "transform":  # its `where` limits what is set, and says nothing of keys
        order = {**order, "where": order.get("delete_where")}
    check_state(closure)
    with suppress(FormatError, NotFoundError):  # a schema that cannot be read is left to Spark
        check_no_limit(checkpoint, closure)
    check_join(closure)
    if order.get("partitions") is not None:
        _check_rescale(
            checkpoint, closure, int(order["partitions"]), migrates=order.get("provider") is not None
        )
    if closure.spark.provider == "hdfs":
        check_codec(closure, elsewhere)
    _check_operator(closure, order)
    if order.get("where"):
        _check_columns(checkpoint, closure, order)
    if order.get("key"):
        check_key(checkpoint, closure, str(order["key"]), order.get("operator"))


def foresee_savepoint(
    repository: Repository, job: str, savepoint: str, order: Mapping[str, Any], *, elsewhere: bool = False
) -> None:
    """The same for state of a savepoint, where it lies."""
    files = SavedFiles(repository, repository.load(job, savepoint))
    foresee_state(files, files.closure(), order, elsewhere=elsewhere)


def check_key(checkpoint: Readable, closure: Closure, text: str, operator: int | None) -> None:
    """Refuse a key that fits the state of no operator. Where Spark's reader may show other keys, it decides.

    Raises:
        InputError: It does not fit (code `bad-key-text`).
        RefusedError: The state has no keys (code `no-key`).
    """
    try:
        schema = read_query_schema(closure.paths, checkpoint.read, closure.offset_conf)
    except (FormatError, NotFoundError):
        return
    rows = [_as_stored(one) for one in schema.operators if operator in (None, one.operator)]
    misfit: InputError | None = None
    for each in rows:
        if each is None:
            return
        if not each["key"]["fields"]:
            continue
        try:
            named_fields(text, each["key"])
        except InputError as error:
            misfit = error
        else:
            return
    if misfit is not None:
        raise misfit
    if rows:
        raise RefusedError(
            "The query keeps one state for all input: it has no keys.",
            code="no-key",
            hint="Nothing of it belongs to one key. What was added to a sum cannot be taken out again.",
        )


def _opened(job: Job) -> Repository | None:
    """The job's repository; None where there is none yet."""
    try:
        return job.open_repository()
    except NotFoundError:
        return None


def _check_rescale(checkpoint: Readable, closure: Closure, partitions: int, *, migrates: bool) -> None:
    if migrates:
        check_strict(checkpoint, closure)
        return
    check_partitions(checkpoint, closure)
    # A store without keys has one partition, whatever is asked for.
    now = {store.partitions for one in closure.operators for store in one.stores} - {1}
    if closure.spark.shuffle_partitions == partitions and now <= {partitions}:
        raise InputError(
            f"The state has {say_count(partitions, 'partition')} already.",
            code="same-partitions",
            hint="Name another number. For this one there is nothing to do.",
        )


def _check_operator(closure: Closure, order: Mapping[str, Any]) -> None:
    known = ", ".join(f"{one.operator} ({one.name})" for one in closure.operators)
    asked = order.get("operator")
    if asked is not None and asked not in {one.operator for one in closure.operators}:
        raise InputError(
            f"The query has no stateful operator {asked}.",
            code="which-operator",
            hint=f"Name one of its operators: {known}.",
        )
    if asked is None and order.get("where") and len(closure.operators) > 1:
        raise InputError(
            "The expression is about the state of one operator, and no operator is named.",
            code="which-operator",
            hint=f"Name one of its operators: {known}.",
        )


def _check_columns(checkpoint: Readable, closure: Closure, order: Mapping[str, Any]) -> None:
    """Refuse `key.x` and `value.x` of columns that the state does not have, and state without keys.

    Of an operator with several stores or state variables Spark's reader shows other columns than are stored,
    so there nothing is judged.
    """
    try:
        schema = read_query_schema(closure.paths, checkpoint.read, closure.offset_conf)
    except (FormatError, NotFoundError):
        return
    asked = order.get("operator")
    found = [one for one in schema.operators if asked in (None, one.operator)]
    stored = _as_stored(found[0]) if len(found) == 1 and order.get("part") is None else None
    if stored is None:
        return
    known = {part: [field["name"].lower() for field in kind["fields"]] for part, kind in stored.items()}
    if not known["key"]:
        raise RefusedError(
            f"Operator {found[0].operator} ({found[0].name}) keeps one state for all input: it has no keys.",
            code="no-key",
            hint="Nothing in it can expire. To reset it, start the job with an empty checkpoint.",
        )
    for part, quoted, plain in _COLUMN.findall(_TEXT.sub("''", str(order["where"]))):
        column = quoted or plain
        if column.lower() not in known[part.lower()]:
            there = ", ".join(f"{each}.{name}" for each in known for name in known[each])
            raise InputError(
                f"The state has no column {part}.{column}, which the expression names.",
                code="bad-expression",
                hint=f"It has {there}.",
            )


def _as_stored(operator: OperatorSchema) -> dict[str, dict[str, Any]] | None:
    """Key and value of an operator's rows, each a struct; None where Spark's reader may show others.

    Of several columns of one name each has the name that expressions call it by.
    """
    if operator.name not in _AS_STORED or len(operator.stores) != 1:
        return None
    families = list(operator.stores[0].newest.values())
    if len(families) != 1:
        return None
    return {"key": _apart(families[0].key), "value": _apart(families[0].value)}


def _apart(kind: Mapping[str, Any]) -> dict[str, Any]:
    fields = kind.get("fields", ())
    names = names_apart([str(field.get("name", "")) for field in fields])
    return {
        "type": "struct",
        "fields": [{**field, "name": name} for field, name in zip(fields, names, strict=True)],
    }


def _check_age(
    repository: Repository | None, job: str, closure: Closure, order: Mapping[str, Any], now: datetime
) -> None:
    """Whether there is a savepoint to compare with: of the same query, of an earlier batch, old enough."""
    if repository is not None and order.get("idle_since") is not None:
        place, savepoint = repository.find(str(order["idle_since"]), job)
        earlier = repository.load(place, savepoint)
        batch, query_id = earlier.batch, earlier.query_id
    else:
        found = _older(repository, job, now, float(order.get("idle_for_s") or 0))
        savepoint, batch, query_id = found.savepoint, found.batch or 0, found.query_id
    check_earlier(savepoint, (query_id, batch), (closure.query_id, closure.batch))


def _older(repository: Repository | None, job: str, now: datetime, seconds: float) -> SavepointSummary:
    before = now - timedelta(seconds=seconds)
    there = [
        (one.taken_at, one)
        for one in (repository.manifests(job) if repository is not None else ())
        if one.job == job and one.error is None and one.derived_from is None and one.taken_at is not None
    ]
    old = [pair for pair in there if pair[0] <= before]
    if old:
        return max(old, key=lambda pair: pair[0])[1]
    first = min((moment for moment, _ in there), default=None)
    when = "take a savepoint, and keep it for that long"
    if first is not None:
        when = (
            "the oldest savepoint will be old enough on "
            f"{first + timedelta(seconds=seconds):%Y-%m-%d at %H:%M} UTC"
        )
    raise NotFoundError(
        f"No savepoint of {job} is from {before:%Y-%m-%d %H:%M} UTC or before.",
        code=TOO_YOUNG,
        hint=f"It is not known yet which keys were idle for so long: {when}. Or name keys by a condition.",
    )
