"""How far a query ever got: the newest batch that its sinks may have been sent.

A restore goes back to a batch; a sink that is not guarded keeps what it was sent after that one. So the
newest batch that was ever committed or begun counts, in whichever generation that was: a query keeps its id
through a restore, and a sink that remembers batch ids remembers those of the generation before, too. A batch
that was begun counts since its rows may have reached the sink: a savepoint does not hold its plan, so
the restored query puts other rows into the batch of that number.

The checkpoint in which the query works tells for sure. Where it is gone, the job's records, the savepoints
and the reports of earlier restores tell how far the query got at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.files import read_query_id
from streambank.checkpoint.position import Batches, batches_of
from streambank.control.control import JobControl
from streambank.control.progress import newest_batch_of
from streambank.control.records import JsonDict
from streambank.core.errors import FormatError, InputError, NotFoundError, StorageError, StreambankError
from streambank.core.names import MAIN, QueryRef
from streambank.repository.catalog import heads
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.storage import is_inside, normalize_location, open_store

_MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a query ever got.

    Attributes:
        committed: The newest batch that is known to have been committed; None where none is.
        planned: The newest batch that is known to have been begun.
        not_known: Why it may have got further; empty where that is known.
    """

    committed: int | None = None
    planned: int | None = None
    not_known: str = ""

    @property
    def newest(self) -> int | None:
        """The newest batch of which a sink may have got rows, as far as is known."""
        return max((one for one in (self.committed, self.planned) if one is not None), default=None)

    def beyond(self, batch: int) -> bool | None:
        """Whether the query got beyond a batch; None where that is not known."""
        if self.newest is not None and self.newest > batch:
            return True
        return None if self.not_known else False

    def sentence(self, batch: int) -> str:
        """`It was sent batches 5 to 10 after the savepoint's batch 4`, without a full stop."""
        newest, committed = self.newest, self.committed
        if newest is None or newest <= batch:
            return f"It is not known whether it was sent anything after the savepoint's batch {batch}"
        if committed is None or committed <= batch:
            return f"Batch {newest} was begun after the savepoint's batch {batch}, and may have reached it"
        begun = f" (batch {newest} was begun, and not committed)" if newest > committed else ""
        return f"It was sent {self.batches(batch)} after the savepoint's batch {batch}{begun}"

    def batches(self, batch: int) -> str:
        """Those after a batch: `batch 5`, `batches 5 to 10`, or `later batches` where they are not known."""
        if self.newest is None or self.newest <= batch:
            return "later batches"
        first = batch + 1
        return f"batch {first}" if self.newest == first else f"batches {first} to {self.newest}"

    def to_dict(self) -> JsonDict:
        return {"committed": self.committed, "planned": self.planned, "not_known": self.not_known or None}


def how_far(
    repository: Repository, manifest: Manifest, control: JobControl, checkpoint: str | None = None
) -> Reached:
    """How far the query of a savepoint ever got. Reads only. A checkpoint that cannot be read is a doubt."""
    query = QueryRef.parse(manifest.job).query
    found = _Found()
    earlier: list[str] = []
    now = [manifest.checkpoint, *([checkpoint] if checkpoint is not None else ())]
    with found.asking():
        if generations := control.generations(query).all():
            now, earlier = [generations[-1].location], [one.location for one in generations]
            earlier.append(manifest.checkpoint)
        elif _records_of(manifest) is not None and control.query_facts(query) is None:
            # They are lost, or the job was never started.
            found.doubts.append(f"no start of the query is recorded at {control.store.uri}")
    there = [found.look_at(place, manifest.query_id) for place in _unlike(now)]
    if not any(there):
        found.gone = now[0]
    for place in _unlike(earlier):
        if place not in _unlike(now):
            found.look_at(place, manifest.query_id)
    head = (one for one in heads(repository.store, manifest.job) if one.query_id == manifest.query_id)
    found.committed += [one.batch for one in (next(head, None),) if one is not None]
    found.committed.append(newest_batch_of(control.store, query, manifest.query_id))
    _add_restores(found, control, manifest)
    if found.gone is not None:
        with found.asking():
            _ask_events(found, control, query or MAIN, manifest.query_id)
    return found.reached()


def records_to_ask(given: JobControl | None, repository: Repository, manifest: Manifest) -> JobControl:
    """The records that know how far a query got: the caller's, or those that the savepoint names."""
    asked = QueryRef.parse(manifest.job)
    control = given or JobControl.of_repository(repository.store, asked.job)
    named = _records_of(manifest)
    if named is None or control.generations(asked.query).records.numbers():
        return control
    if is_inside(named, control.store.uri) and is_inside(control.store.uri, named):
        return control
    try:
        elsewhere = JobControl(open_store(named), asked.job)
        return elsewhere if elsewhere.generations(asked.query).records.numbers() else control
    except StreambankError:
        return control  # out of reach from here: how far the query got is not known then


def _records_of(manifest: Manifest) -> str | None:
    named = manifest.taken_by.get("records")
    return named if isinstance(named, str) else None


class _Found:
    """What was found so far, and what could not be asked."""

    def __init__(self) -> None:
        self.committed: list[int | None] = []
        self.planned: list[int | None] = []
        self.doubts: list[str] = []
        self.gone: str | None = None
        self.at_rest_at: int | None = None

    def look_at(self, place: str, query_id: str) -> bool:
        """Ask a checkpoint; false where nothing is there. One that cannot be asked leaves a doubt."""
        is_there = True
        with self.asking(StorageError):
            batches = _batches(place, query_id)
            self.committed.append(batches.committed)
            self.planned.append(batches.planned)
            is_there = batches.committed is not None
        return is_there

    @contextmanager
    def asking(self, *also: type[StreambankError]) -> Iterator[None]:
        """An error of these kinds, while this is asked, means that the query may have got further."""
        kinds: tuple[type[StreambankError], ...] = (FormatError, InputError, *also)
        try:
            yield
        except kinds as error:
            self.doubts.append(error.message.rstrip("."))

    def reached(self) -> Reached:
        committed = max((one for one in self.committed if one is not None), default=None)
        planned = max((one for one in (*self.planned, committed) if one is not None), default=None)
        doubts = list(self.doubts)
        if self.gone is not None and (self.at_rest_at is None or self.at_rest_at != committed):
            known = (
                "nothing else shows how far it got"
                if committed is None
                else f"the newest batch known is {committed}"
            )
            doubts.append(f"its checkpoint {self.gone} is gone, and {known}")
        return Reached(committed, planned, "; ".join(doubts))


def _unlike(places: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(normalize_location, places)))


def _batches(location: str, query_id: str) -> Batches:
    """The batches of a checkpoint; none where it is gone, or another query's."""
    try:
        if read_query_id(open_store(location)) != query_id:
            return Batches(None, None)
    except (NotFoundError, FormatError):
        pass  # half of a checkpoint: its logs still say what was begun
    return batches_of(location)


def _add_restores(found: _Found, control: JobControl, manifest: Manifest) -> None:
    """What earlier restores of the query knew: their reports are kept for ever."""
    for record in control.stream("restores").history():
        if record.data.get("query_id") != manifest.query_id:
            continue
        reached = record.data.get("reached")
        known = reached if isinstance(reached, Mapping) else {}
        found.committed += [_number(record.data.get("batch")), _number(known.get("committed"))]
        found.planned.append(_number(known.get("planned")))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _ask_events(found: _Found, control: JobControl, query: str, query_id: str) -> None:
    """Whether the query stands still since a stop at a batch boundary, where its checkpoint cannot tell."""
    events = list(_since_start(control, query))
    if not events or events[-1].get("kind") != "query-started" or events[-1].get("query_id") != query_id:
        return
    for event in events:
        if event.get("query") == query and event.get("kind") in ("savepoint-taken", "query-ended"):
            batch = _number(event.get("batch"))
            found.committed.append(batch if batch is not None and batch >= 0 else None)
    # A stop that found no driver leaves it to the one before it.
    stops = (event for event in events if event.get("kind") == "stopped" and event.get("how") != "none")
    stopped: JsonDict = next(stops, {})
    batches = stopped.get("batches")
    if stopped.get("how") == "boundary" and isinstance(batches, Mapping):
        found.at_rest_at = _number(batches.get(query))
        found.committed.append(found.at_rest_at)


def _since_start(control: JobControl, query: str) -> Iterator[JsonDict]:
    """Events since the newest start of a query, newest first, that start last."""
    for number, record in enumerate(control.event_records.newest_first()):
        if number >= _MOST_EVENTS:
            return
        if record.data.get("kind") == "query-started" and record.data.get("query") != query:
            continue
        yield record.data
        if record.data.get("kind") == "query-started":
            return
