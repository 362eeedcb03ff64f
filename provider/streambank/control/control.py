"""Everything a job remembers, behind one object: `JobControl` over `<control>/<job>/`.

```
identity.json     which records these are, where they are signed (signed.py)
desired/          what is meant to be: running or stopped (a stream of numbered, create-only records)
generation/<q>/   which directory is the query's checkpoint
removed/<q>/      which of its earlier directories were removed
operation/        the operation lock          lease/      one driver at a time
requests/         what a driver is asked      answers/    what came of it
events/           what happened, and who did it
queries/<q>/      what a driver learnt from Spark about a query: its id, its sinks, its sources
launches/<id>.json   what was started, with every setting     logs/   drivers' output
released/<id>.json   a launch that an upgrade held, as it stands at its release
located/<id>.json    where a driver in a cluster is     bundles/   our code, for drivers in a cluster
chosen/           which code counts instead of the declared one (streambank/code)
code/             copies of programs     upgrades/, upgrading/   how far upgrades have come
watch/            who keeps the job running, and when that watcher last gave a sign
progress/<q>/     Spark's progress, a record a batch           restores/  reports
taken-back/<q>/   that a restore is about to take a query's sinks back
restored-together/   which queries are restored as one
sla/told/<t>/     what a teller has told of the SLA     sla/hours/<q>/  hours of the history, a cache
alerts/<t>/       what a notifier was alerted of within the last day
sla/hot-keys/<q>/ the largest key of the state, as Spark found it
```

`<q>` is the query's name, or `main` where the job has only one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from streambank.control.claims import Clock, moved_meanwhile
from streambank.control.generations import Generation, Generations
from streambank.control.lease import Lease
from streambank.control.operation import Operation, OperationLock
from streambank.control.place import MOVED, find_records
from streambank.control.processes import HostId, person, this_host
from streambank.control.records import JsonDict, Record, RecordStream
from streambank.control.requests import Requests
from streambank.control.signed import Signer
from streambank.control.watch import Watches
from streambank.core.errors import InputError
from streambank.core.names import MAIN, check_job_name
from streambank.core.signing import signing_keys
from streambank.core.units import to_json_time, utc_now
from streambank.storage import open_store
from streambank.storage.store import Store

DesiredState = Literal["running", "stopped"]
RECENT_EVENTS = 1000
"""Among so many of the newest events it is sought how a driver ended, which it leaves behind as it ends."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desired:
    """What is meant to be."""

    state: DesiredState
    by: Mapping[str, str]
    why: str
    at: datetime
    number: int

    @property
    def words(self) -> str:
        """Who set it to what, when, and why: `set to stopped by ann at ...: the disk is full`."""
        why = f": {self.why.rstrip('.')}" if self.why else ""
        return f"set to {self.state} by {person(self.by)} at {to_json_time(self.at)}{why}"


class JobControl:
    """The records of one job.

    Attributes:
        check_site: Raises where the job must not be changed at the site of these records, since another one
            is active; returns what cannot be excluded. The declaration of a job sets it (`Job.records`);
            records that were found without a declaration do not know of sites.
        checkpoints: Where the checkpoint of each query is declared: at the site of these records, and at the
            other one; none without a declaration.
    """

    def __init__(
        self, store: Store, name: str, *, here: HostId | None = None, clock: Clock | None = None
    ) -> None:
        self.store = store
        self.name = check_job_name(name)
        self.here = here or this_host()
        self.clock = clock or Clock()
        self.lease = Lease(store, name, here=self.here, clock=self.clock)
        self.operation_lock = OperationLock(store, name, here=self.here, clock=self.clock)
        self.requests = Requests(store)
        self.watches = Watches(store)
        self.signer = Signer(store, name, signing_keys())
        self.desired_records = RecordStream(store, "desired", signer=self.signer, anywhere=True)
        self.event_records = RecordStream(store, "events")
        self.check_site: Callable[[], Sequence[str]] = tuple
        self.checkpoints: Mapping[str, Sequence[str]] = {}

    @classmethod
    def open(
        cls, control: str, name: str, *, here: HostId | None = None, clock: Clock | None = None
    ) -> JobControl:
        """The records of job `name` under a control location."""
        return cls(open_store(control).child(check_job_name(name)), name, here=here, clock=clock)

    @classmethod
    def of_repository(cls, repository: Store, name: str, *, guess: bool = True) -> JobControl:
        """The records of a job of which only the repository is known: place.py says where they are.

        Args:
            guess: Look inside the repository only where the caller may not look beside it.

        Raises:
            ConflictError: They are in two places (code `records-twice`).
            RefusedError: They were moved elsewhere (`records-moved`).
        """
        return cls(find_records(repository, check_job_name(name), guess=guess), name)

    # What is meant to be.

    def desired(self) -> Desired | None:
        """What is meant to be; None where nobody ever said.

        Raises:
            FormatError: The newest record is damaged (code `damaged-record`).
            IntegrityError: It is not signed, and has to be (codes `not-signed`, `bad-signature`).
        """
        record = self.desired_records.latest()
        if record is None:
            return None
        return record.decode(
            Desired,
            lacking={"by": {}, "why": ""},
            known={"number": record.number},
            hint="It was cut off or edited. Say again what is meant to be: start or stop the job.",
        )

    def set_desired(self, state: DesiredState, *, by: Mapping[str, str], why: str = "") -> Desired:
        """Say what is meant to be; as it was recorded. The last one to say it counts.

        Raises:
            InputError: It is no such state (code `bad-state`).
            ConflictError: The records were moved since they were opened (`records-moved`).
        """
        if state not in ("running", "stopped"):
            raise InputError(
                f"The desired state of a job must be running or stopped, not {state!r}.",
                code="bad-state",
                hint="Give running or stopped.",
            )
        at = utc_now()
        data = {"state": state, "at": to_json_time(at), "by": dict(by), "why": why}
        number = self.desired_records.append(data)
        if self.store.exists(MOVED):
            raise moved_meanwhile(self.store)
        return Desired(state, dict(by), why, at, number)

    def is_stopped(self) -> bool:
        """Whether the job is meant to be stopped."""
        desired = self.desired()
        return desired is not None and desired.state == "stopped"

    def last_desired(self, by: Callable[[Mapping[str, str]], bool]) -> JsonDict | None:
        """The newest record of what is meant to be that some people made; None where they made none."""
        return next(
            (
                record.data
                for record in self.desired_records.newest_first()
                if by(record.data.get("by") or {})
            ),
            None,
        )

    # Its other streams.

    def stream(self, prefix: str) -> RecordStream:
        """The records under a prefix that decide nothing, and are not signed."""
        return RecordStream(self.store, prefix)

    def signed(self, prefix: str) -> RecordStream:
        """The records under a prefix that decide something; they are signed where there are keys."""
        return RecordStream(self.store, prefix, signer=self.signer)

    # Which directory counts.

    def generations(self, query: str | None = None) -> Generations:
        """The generations of a query (None for the only one)."""
        return Generations(self.store, self.name, query, signer=self.signer)

    def generation(self, query: str | None = None) -> Generation | None:
        """The current generation of a query; None before the first start."""
        return self.generations(query).current()

    def checkpoint(self, query: str, declared: str) -> str:
        """Where a query works: in its current generation, or as declared before its first start."""
        current = self.generation(query)
        return declared if current is None else current.location

    # Who may act.

    @contextmanager
    def operation(
        self, name: str, *, by: Mapping[str, str], wait_s: float = 0.0, any_site: bool = False
    ) -> Iterator[Operation]:
        """Hold the operation lock for a `with` block (operation.py).

        Args:
            any_site: The operation changes nothing that another site has gone on from, or asks the sites in
                its own way.

        Raises:
            ConflictError: Another operation works on the job (code `operation-in-progress`).
            RefusedError: Another site of the job is the active one (`failed-over`, `failing-over`,
                `sites-disagree`).
            IntegrityError: These are the signed records of another place (`records-of-another-place`).
        """
        with self.operation_lock.hold(name, by=by, wait_s=wait_s) as held:
            if not any_site:
                self.signer.require_place()
                for warning in self.check_site():
                    _log.warning("%s of job %s: %s", name, self.name, warning)
            yield held

    # What happened.

    def record_event(self, kind: str, **details: Any) -> int:
        """Leave behind that something happened: `kind` is one of those in docs/formats/job.md."""
        return self.event_records.append({"kind": kind, "at": to_json_time(utc_now()), **details})

    def events(self, *, newest: int | None = None) -> Iterator[Record]:
        """What happened (or only the newest), oldest first; a damaged record shows as one with `error`."""
        return self.event_records.history(newest=newest)

    def last_event(
        self, *kinds: str, launch_id: str | None = None, newest: int | None = None
    ) -> JsonDict | None:
        """The newest event of one of these kinds (and of this launch), among the newest ones or all."""
        for record in islice(self.event_records.newest_first(), newest):
            if record.data.get("kind") in kinds and launch_id in (None, record.data.get("launch_id")):
                return record.data
        return None

    def last_word(self, launch_id: str) -> JsonDict | None:
        """What the newest driver of a launch recorded at its end; None for one that lives, or was killed."""
        kinds = ("driver-ended", "driver-started")
        last = self.last_event(*kinds, launch_id=launch_id, newest=RECENT_EVENTS)
        return last if last is not None and last["kind"] == "driver-ended" else None

    def was_asked_to_stop(self, launch_id: str) -> bool:
        """Whether the newest driver of a launch was asked to stop, or sent TERM."""
        kinds = ("stop-asked", "driver-started")
        last = self.last_event(*kinds, launch_id=launch_id, newest=RECENT_EVENTS)
        return last is not None and last["kind"] == "stop-asked"

    # What a driver learnt about its queries.

    def record_query(self, query: str | None, facts: Mapping[str, Any]) -> None:
        """Keep what Spark says about a query that was started: `query_id`, `run_id`, `sink`, `sources`, ...

        Written by the runner once per start of a query; `query_facts` documents the fields.
        """
        self.stream(f"queries/{query or MAIN}").append({"at": to_json_time(utc_now()), **facts})

    def query_facts(self, query: str | None = None) -> JsonDict | None:
        """What the last driver learnt about a query; None before the first start.

        Fields: `at`, `epoch`, `generation`, `query_id`, `run_id`, `sink` (Spark's `sink().toString()`, such
        as `FileSink[file:/data/out]`), `sources` (a list of such strings), `spark_version`.
        """
        record = self.stream(f"queries/{query or MAIN}").latest()
        return None if record is None else record.data
