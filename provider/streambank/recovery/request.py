"""What a restore, and the plan of one, is asked for, and whether that makes sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from streambank.control.control import JobControl
from streambank.core.choices import (
    RESTORE_MODES,
    ROLLBACKS,
    SINK_CHOICES,
    SOURCE_CHOICES,
    RestoreMode,
    SinkChoice,
    SourceChoice,
)
from streambank.core.errors import InputError, check_choice
from streambank.core.names import MAIN
from streambank.declaration.declaration import Job
from streambank.kafka.settings import Brokers
from streambank.recovery.choices import SinkChoices
from streambank.recovery.choosing.resolve import Chosen, Skipped
from streambank.repository.repository import Repository
from streambank.sinks.declared import DeclaredSink
from streambank.storage import open_store
from streambank.storage.store import Opener, Store


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What a restore, and the plan of one, is asked for.

    Attributes:
        reference: Any of `repository/references.py`; `latest-good` is the newest that verifies.
        chosen: The savepoint, where it has been chosen and verified already (choosing/nearest.py).
        job: `job` or `job/query`; may be left out where that leaves no choice.
        into: An empty directory. Either this or `generation`.
        control: The records of the job for `into`, where they are not at `jobs/<job>` of the repository: a
            restore is refused while a driver of the job lives.
        guessed: It was not said where those records are: they are searched for beside the savepoints.
        checkpoint: The declared checkpoint, for a job that was never started under Streambank.
        mode: `no-claim` (default) leaves the savepoint alone; `claim` makes it the job's own, free to expire;
            `fork` begins a second query with a new id.
        sink: What to do where going on would lose or repeat rows: `refuse` (default); `rollback`: set later
            output aside, or out of a table; `rollback-accept`: the same where a file sink lacks files of the
            savepoint, which stay missing; `accept`: leave it as it is, the only choice for sinks that are
            not guarded.
        sink_of: The same for single sinks, by the paths that a plan shows.
        source: What to do where Kafka no longer has what the query would read next, or cannot be asked, where
            files are gone that it would read again, or a source cannot be repeated: `refuse` (default);
            `accept`: go on without those records.
        kafka: How Kafka is reached; by what the savepoint says when left out.
        application: The path of the job's PySpark application, which may set `cleanSource`; empty where no
            job is declared.
        jobs_file: Where the job is declared, with others that may read its output; empty for nowhere.
        restored_too: Queries that go back far enough in the same operation, as `job` or `job/query`.
        file_sinks: Output directories of file sinks of the query that the savepoint does not name.
        moved_sinks: Sinks that are elsewhere now: the location in the savepoint to the one now.
        new_sinks: Sinks instead of which the restored query writes to a new output directory, which gets a
            log that Spark goes on from: the location in the savepoint to the new one.
        unmoved: Refuse where the query has gone on since the savepoint, or has begun a batch: what its sinks
            got of that is not always known. For `generation` only.
        together: The other queries of the job are restored with this one, so `sink_of` may name sinks of
            these.
        link: Let large files share their bytes with the repository.
        skipped: What a plan has passed over before it came to the savepoint that is named now.
        by: Who asks; `restore` adds user and host.
    """

    repository: Repository
    reference: str
    _: KW_ONLY
    chosen: Chosen | None = None
    job: str | None = None
    into: Store | None = None
    generation: JobControl | None = None
    control: JobControl | None = None
    guessed: bool = False
    checkpoint: str | None = None
    mode: RestoreMode = "no-claim"
    sink: SinkChoice = "refuse"
    sink_of: Mapping[str, SinkChoice] = field(default_factory=dict)
    source: SourceChoice = "refuse"
    kafka: Brokers = field(default_factory=Brokers)
    application: str = ""
    declared_sinks: tuple[DeclaredSink, ...] = ()
    jobs_file: str = ""
    restored_too: frozenset[str] = frozenset()
    file_sinks: tuple[str, ...] = ()
    moved_sinks: Mapping[str, str] = field(default_factory=dict)
    new_sinks: Mapping[str, str] = field(default_factory=dict)
    unmoved: bool = False
    together: bool = False
    opener: Opener = open_store
    link: bool = False
    skipped: tuple[Skipped, ...] = ()
    by: Mapping[str, str] = field(default_factory=dict)

    @property
    def sink_choices(self) -> SinkChoices:
        return SinkChoices(self.sink, self.sink_of)

    @property
    def records(self) -> JobControl | None:
        """The records of the job, where the caller names them."""
        return self.generation or self.control

    @property
    def rolls_back(self) -> bool:
        """Whether any sink may be rolled back."""
        return not {self.sink, *self.sink_of.values()}.isdisjoint(ROLLBACKS)


@dataclass(frozen=True, slots=True)
class TogetherRequest:
    """What a restore of the queries of a job is asked for: of all of them, or of one alone.

    Attributes:
        job: The job; None for the only query of one that is not declared.
        query: Of this query alone, which `each` may name otherwise; None for all.
        savepoints: The id of the savepoint of each query, instead of a reference: what a person approved.
        whole: Read every byte of savepoints that are named, too; see `plan_restore`. `nearest` reads
            every byte whatever this says (`from_place`).
        chosen: The savepoint of each query, where they have been chosen and verified already (`from_place`).
        file_sinks: Output directories of file sinks that the savepoint of a query does not name, by query.
        restored_with: Other jobs that are restored by the same command, to savepoints from before.
        skipped: What a plan has passed over of each query before it came to `savepoints`.
    """

    each: RestoreRequest
    job: Job | None = None
    query: str | None = None
    savepoints: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    chosen: Mapping[str, Chosen] | None = None
    file_sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    restored_with: tuple[str, ...] = ()
    skipped: Mapping[str, tuple[Skipped, ...]] = field(default_factory=dict)
    looks_for_readers: bool = True

    @property
    def only(self) -> str | None:
        """The query, where it is of a single one; None for all of several."""
        if self.query is not None or self.job is None:
            return self.query or MAIN
        return next(iter(self.job.queries)) if len(self.job.queries) == 1 else None


def check_request(request: RestoreRequest) -> None:
    """Make sure that what was asked for makes sense."""
    if (request.into is None) == (request.generation is None):
        raise InputError(
            "A restore needs either an empty directory or the job's next generation.",
            code="no-target",
            hint="Give --into DIR or --generation.",
        )
    check_choice(request.mode, "mode", RESTORE_MODES)
    check_choice(request.sink, "sink", SINK_CHOICES)
    for choice in request.sink_of.values():
        check_choice(choice, "sink", SINK_CHOICES)
    check_choice(request.source, "source", SOURCE_CHOICES)
    if request.unmoved and request.generation is None:
        raise InputError(
            "`unmoved` works only for the next generation of a job.",
            code="bad-choice",
            hint="Leave `unmoved` out for a directory.",
        )
    if request.mode == "fork" and request.generation is not None:
        raise InputError(
            "A fork is a second query: it cannot be the next generation of the first one.",
            code="fork-needs-directory",
            hint="Give --into DIR, and declare another job with that directory as checkpoint.",
        )
    if request.mode == "fork" and request.rolls_back:
        raise InputError(
            "A fork must not roll back the sinks of the query that it is forked from.",
            code="fork-cannot-roll-back",
            hint="Let the fork write elsewhere, and say where with --new-sink OLD=NEW.",
        )
