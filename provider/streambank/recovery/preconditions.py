"""Everything of a restore that comes before its first write: what was asked, and how things stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.copies import outputs_unknown
from streambank.control.generations import Generation
from streambank.control.marker import marked_generation, records_root, service_name
from streambank.control.place import INSIDE, SUFFIX, moved_to
from streambank.core.choices import (
    RESTORE_MODES,
    SINK_CHOICES,
    SOURCE_CHOICES,
    RestoreMode,
    SinkChoice,
    SourceChoice,
)
from streambank.core.errors import (
    FormatError,
    InputError,
    RefusedError,
    StorageError,
    StreambankError,
    check_choice,
)
from streambank.core.names import MAIN, QueryRef
from streambank.driver.preflight import DeclaredQuery, held_elsewhere
from streambank.inputs.replayable import replays_of
from streambank.inputs.sources import Sources, look_at_sources
from streambank.kafka.settings import Brokers
from streambank.recovery.choices import SinkChoices
from streambank.recovery.plan import RestorePlan, age_s, reported_rows, state_rows
from streambank.recovery.reached import Reached, how_far, records_to_ask
from streambank.recovery.report import Estimate, estimates
from streambank.recovery.resolve import Chosen, Skipped, next_ones
from streambank.recovery.sinks import (
    Sinks,
    check_stands_at,
    look_at_sinks,
    query_sinks_now,
    refusals,
    warnings,
)
from streambank.recovery.tables import check_table_still_even
from streambank.recovery.unguarded import unguarded_refusals, unnamed_sink
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.formats import unknown_versions
from streambank.savepoint.materialize import Owner, check_target
from streambank.sinks.declared import DeclaredSink
from streambank.sites.forks import left_after, why_left
from streambank.sites.records import Sites
from streambank.storage import is_inside, open_store
from streambank.storage.store import Opener, Store
from streambank.work.target import check_target_apart


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What a restore, and the plan of one, is asked for.

    Attributes:
        repository: Where the savepoint is.
        reference: Any of `repository/references.py`; `latest-good` is the newest that verifies.
        chosen: The savepoint, where it has been chosen and verified already (nearest.py).
        job: `job` or `job/query`; may be left out where that leaves no choice.
        into: An empty directory. Either this or `generation`.
        generation: The records of the job whose next generation it becomes.
        control: The records of the job for `into`, where they are not at `jobs/<job>` of the repository: a
            restore is refused while a driver of the job lives.
        guessed: Nobody said where those records are: they are looked for beside the savepoints.
        checkpoint: The declared checkpoint, for a job that was never started under Streambank.
        mode: `no-claim` (default) leaves the savepoint alone; `claim` makes it the job's own, free to expire;
            `fork` begins a second query with a new id.
        sink: What to do where going on would lose or repeat rows: `refuse` (default); `rollback`: set later
            output aside, or out of a table; `accept`: leave it as it is, the only choice for sinks that are
            not guarded.
        sink_of: The same for single sinks, by the paths that a plan shows.
        source: What to do where Kafka no longer has what the query would read next, or cannot be asked, where
            files are gone that it would read again, or a source cannot be repeated: `refuse` (default);
            `accept`: go on without those records.
        kafka: How Kafka is reached; by what the savepoint says when left out.
        application: The path of the job's PySpark application, which may set `cleanSource`; empty where no
            job is declared.
        declared_sinks: What the job declares of the sinks of its queries.
        moved_sinks: Sinks that are elsewhere now: the location in the savepoint to the one now.
        new_sinks: Sinks instead of which the restored query writes to a new output directory, which gets a
            log that Spark goes on from: the location in the savepoint to the new one.
        unmoved: Refuse where the query has gone on since the savepoint, or has begun a batch: what its sinks
            got of that is not always known. For `generation` only.
        together: The other queries of the job are restored with this one, so `sink_of` may name sinks of
            these.
        opener: Opens locations; tests bring their own.
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
        """What is done with each sink."""
        return SinkChoices(self.sink, self.sink_of)

    @property
    def rolls_back(self) -> bool:
        """Whether any sink may be rolled back."""
        return "rollback" in (self.sink, *self.sink_of.values())


@dataclass(frozen=True, slots=True)
class Prepared:
    """A restore up to the point where it would begin to write."""

    chosen: Chosen
    plan: RestorePlan
    sinks: Sinks
    target: Store
    generation: Generation | None


def check_request(request: RestoreRequest) -> None:
    """Make sure that what was asked for makes sense.

    Raises:
        InputError: It does not.
    """
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
            hint="Give --into DIR, and declare a job of its own with that directory as checkpoint.",
        )
    if request.mode == "fork" and request.rolls_back:
        raise InputError(
            "A fork must not roll back the sinks of the query that it is forked from.",
            code="fork-cannot-roll-back",
            hint="Let the fork write elsewhere, and say where with --new-sink OLD=NEW.",
        )


def records_of(request: RestoreRequest, chosen: Chosen) -> JobControl | None:
    """The records of the job that has to stand still; None where there are none, or for a fork.

    Raises:
        InputError: `another-job`: the caller's records are those of another job.
        RefusedError: `other-records`: they are only guessed, and the job's are elsewhere.
    """
    name = QueryRef.parse(chosen.manifest.job).job
    given = request.generation or request.control
    if given is not None and given.name != name:
        raise InputError(
            f"Savepoint {chosen.manifest.savepoint} is of job {name}, not of {given.name}.",
            code="another-job",
            hint=_fork_hint(name, given.name) or "Restore it into its own job, or fork it into a directory.",
        )
    if request.mode == "fork":
        return None
    control = given or JobControl.of_repository(request.repository.store, name)
    if given is None or request.guessed:
        _check_records(request, chosen, control)
    return control if given is not None or control.lease.view() is not None else None


def _fork_hint(job: str, other: str) -> str:
    """What to do where a copy of a job is named for a savepoint of the job; empty where none is."""
    copy = other.removeprefix(f"{job}-")
    if copy == other:
        return ""
    return (
        f"If {other} is a copy of {job}, `streambank fork {job} {copy}` makes it from such a savepoint. "
        "Else restore it into its own job, or fork it into a directory."
    )


def _check_records(request: RestoreRequest, chosen: Chosen, control: JobControl) -> None:
    """Make sure that nothing of a job is changed by records that are not its own: its driver may live.

    A savepoint of a managed job says where its records were. A restore into a directory that leaves the
    sinks alone changes nothing of the job.
    """
    known = chosen.manifest.taken_by.get("records")
    if not isinstance(known, str) or (request.generation is None and not request.rolls_back):
        return
    same = is_inside(known, control.store.uri) and is_inside(control.store.uri, known)
    if not same and not _were_moved(request, known, control):
        raise RefusedError(
            f"It is not known whether job {control.name} runs: its records were at {known} when the "
            f"savepoint was taken, not at {control.store.uri}.",
            code="other-records",
            hint="Name its jobs file with --jobs. If those records are lost, name a jobs file whose "
            "`control` is the location for the new ones.",
        )


def _were_moved(request: RestoreRequest, known: str, control: JobControl) -> bool:
    """Whether those records, if the repository is their usual place, were moved to where these are."""
    places = (f"{request.repository.store.uri}/{INSIDE}", f"{request.repository.store.uri}{SUFFIX}")
    own = any(service_name(known) == service_name(f"{place}/{control.name}") for place in places)
    return own and moved_to(open_store(known)) == records_root(control)


def prepare(
    request: RestoreRequest, chosen: Chosen, owner: Owner, against: list[StreambankError]
) -> Prepared:
    """Look at everything, and decide nothing: what speaks against the restore is in the plan.

    Args:
        request: What was asked for.
        chosen: The savepoint.
        owner: Who restores.
        against: What speaks against it already.
    """
    manifest = chosen.manifest
    if request.into is not None:
        check_target_apart(request.into.uri, request.repository.store.uri, manifest.checkpoint)
    target, generation = _target(request, chosen, owner)
    try:
        check_target(target, owner)
    except StreambankError as error:
        if isinstance(error, StorageError):
            raise
        against.append(error)
    if request.generation is not None and request.checkpoint is not None:
        name = QueryRef.parse(manifest.job).name
        place = (request.checkpoint, request.generation, request.repository.store.uri)
        lives = held_elsewhere(DeclaredQuery(request.generation.name, name, *place))
        if lives is not None:
            against.append(lives)
    if request.unmoved:
        _check_unmoved(request, chosen, against)
    found = sinks_at(request, manifest)
    by_sinks = _sink_refusals(request, chosen, found)
    choices = request.sink_choices
    sinks = found.under(choices, request.mode)
    # A query that stands where the savepoint is reads on from there, whatever it is restored into.
    live = live_checkpoint(request, manifest)
    if request.unmoved:
        sources = Sources(())
    else:
        sources = look_at_sources(
            request.repository, manifest, request.kafka, live, application=request.application
        )
    by_sources = {choice: tuple(sources.refusals(choice)) for choice in SOURCE_CHOICES}
    if generation is not None:
        generation = replace(generation, new_sinks=_left_outputs(request, chosen, sinks))
        assert request.generation is not None
        unknown = outputs_unknown(request.generation, QueryRef.parse(manifest.job).name, generation)
        if unknown is not None:
            against.append(unknown)
    plan = RestorePlan(
        savepoint=manifest.savepoint,
        job=manifest.job,
        batch=manifest.batch,
        query_id=manifest.query_id,
        taken_at=manifest.taken_at,
        age_s=age_s(manifest),
        files=len(manifest.files),
        bytes=sum(entry.size_bytes for entry in manifest.files),
        rows=_rows(request, chosen),
        note=manifest.note,
        location=target.uri,
        generation=generation.number if generation else None,
        mode=request.mode,
        sink=request.sink,
        sinks=tuple(sinks.to_dicts(choices)),
        mixed_sinks=_mixed(request, found),
        reached=sinks.reached,
        source=request.source,
        sources=tuple(sources.to_dicts()),
        replays=() if request.unmoved else tuple(replays_of(sources, manifest)),
        repository=request.repository.store.uri,
        passed_over=chosen.passed_over,
        watermark_ms=manifest.watermark_ms,
        read_again=_read_again(live, manifest, sinks.reached),
        estimates=_estimates(request, manifest),
        next=next_ones(request.repository, manifest),
        as_of=chosen.as_of,
        skipped=tuple({one.savepoint: one for one in (*request.skipped, *chosen.skipped)}.values()),
        refusals=(*against, *by_sinks[request.sink], *by_sources[request.source]),
        other_refusals=tuple(against),
        sink_refusals=by_sinks,
        source_refusals=by_sources,
        warnings=(
            *_warnings(request, chosen, sinks),
            *warnings(sinks, choices, request.mode),
            *sources.warnings(request.source),
        ),
    )
    return Prepared(chosen, plan, sinks, target, generation)


def sinks_at(request: RestoreRequest, manifest: Manifest) -> Sinks:
    """The sinks as they stand; those of a query that stands where the savepoint is need not be asked.

    Args:
        request: What is asked for.
        manifest: The savepoint.

    Raises:
        StreambankError: See `look_at_sinks`; or the job's records cannot be read.
    """
    reached, unnamed, now = None, None, None
    same_line: bool | None = True
    if not request.unmoved:
        guarded = [record.get("guarded") is True for record in manifest.sinks]
        records = _records_to_ask(request, manifest)
        now = query_sinks_now(records, manifest, request.declared_sinks)
        same_line = _is_same_line(records, manifest)
        unnamed = unnamed_sink(records, manifest)
        if unnamed is not None or now.plain or not guarded or not all(guarded):
            reached = _how_far(request, manifest)
    return look_at_sinks(
        request.repository,
        manifest,
        request.moved_sinks,
        request.new_sinks,
        kafka=None if request.unmoved else request.kafka,
        mode=request.mode,
        reached=reached,
        unnamed=unnamed,
        now=now,
        same_line=same_line,
    )


def _is_same_line(records: JobControl, manifest: Manifest) -> bool | None:
    """Whether the query did not go back below a savepoint's batch since that was taken.

    A restore of the savepoint itself, or of a later one, leads to no other batch of its number. Before the
    first generation a query ran without records, and may have been restored into a directory. What a site
    has saved after the other one went on is of another line.
    """
    try:
        left = left_after(Sites(records).all(), QueryRef.parse(manifest.job).query or MAIN)
        if why_left(left, manifest.checkpoint, manifest.batch):
            return False
        generations = records.generations(QueryRef.parse(manifest.job).query).all()
    except FormatError:
        return False  # damaged: it may have
    since = [one.from_savepoint for one in generations if one.made_at > manifest.taken_at]
    if any(_below(one, manifest.batch) for one in since if one is not None):
        return False
    return True if len(since) < len(generations) else None


def _below(savepoint: str, batch: int) -> bool:
    """Whether a savepoint is of an earlier batch, by its id, which begins with that; if in doubt, yes."""
    digits = savepoint.partition("-")[0].removeprefix("b")
    return not digits.isdecimal() or int(digits) < batch


def _how_far(request: RestoreRequest, manifest: Manifest) -> Reached:
    return how_far(request.repository, manifest, _records_to_ask(request, manifest), request.checkpoint)


def _records_to_ask(request: RestoreRequest, manifest: Manifest) -> JobControl:
    return records_to_ask(request.generation or request.control, request.repository, manifest)


def check_still_at(request: RestoreRequest, manifest: Manifest, sinks: Sinks) -> None:
    """Look once more how far the query got, right before the restored directory becomes a checkpoint.

    Files may have been written for hours since the first look, beside a query that runs on without a lease.

    Args:
        request: What was asked for.
        manifest: The savepoint.
        sinks: Its sinks as they stood.

    Raises:
        RefusedError: A sink that is not guarded was sent more meanwhile (code `sink-not-guarded`), or a table
            has more (`sink-would-lose-rows`).
    """
    choices = request.sink_choices
    for table in sinks.tables:
        if choices[table.standing.path] == "refuse":
            check_table_still_even(table, manifest.batch)
    if sinks.reached is None:
        return
    reached = _how_far(request, manifest)
    for sink in sinks.unguarded:
        for refusal in unguarded_refusals([replace(sink, reached=reached)], choices[sink.path]):
            raise refusal


def _sink_refusals(
    request: RestoreRequest, chosen: Chosen, found: Sinks
) -> dict[SinkChoice, tuple[StreambankError, ...]]:
    """What speaks against each choice for the sinks, of those that the mode has."""
    of = request.sink_of
    if request.together:  # some name sinks of the other queries
        of = {path: choice for path, choice in of.items() if path in found.paths}
    choices: list[SinkChoice] = [one for one in SINK_CHOICES if request.mode != "fork" or one != "rollback"]
    by_choice = {}
    for one in choices:
        picked = SinkChoices(one, of)
        by_choice[one] = refusals(found.under(picked, request.mode), picked, request.mode)
    if request.into is not None and "rollback" in by_choice:
        try:
            records_of(replace(request, sink="rollback"), chosen)
        except RefusedError as error:
            by_choice["rollback"].insert(0, error)
    return {one: tuple(against) for one, against in by_choice.items()}


def _mixed(request: RestoreRequest, found: Sinks) -> Mapping[str, SinkChoice]:
    """Which sinks would stay as they are if all others were rolled back; empty where that does not work."""
    mixed = found.mixed() if request.generation is not None and not request.sink_of else None
    if mixed is None or refusals(found.under(mixed, request.mode), mixed, request.mode):
        return {}
    return mixed.of


def _check_unmoved(request: RestoreRequest, chosen: Chosen, against: list[StreambankError]) -> None:
    assert request.generation is not None, "check_request has seen to it"
    manifest = chosen.manifest
    current = request.generation.generation(QueryRef.parse(manifest.job).query)
    location = current.location if current is not None else request.checkpoint or manifest.checkpoint
    try:
        check_stands_at(manifest.job, location, manifest.batch)
    except RefusedError as error:
        against.append(error)


def live_checkpoint(request: RestoreRequest, manifest: Manifest) -> str:
    """The checkpoint in which the query has gone on; the one that was saved where no other is known."""
    current = (
        request.generation.generation(QueryRef.parse(manifest.job).query)
        if request.generation is not None
        else None
    )
    return current.location if current is not None else manifest.checkpoint


def _read_again(live: str, manifest: Manifest, reached: Reached | None) -> tuple[int, int] | None:
    """The batches after the savepoint's that the query has committed or begun, where that is known."""
    newest = None if reached is None else reached.newest
    if reached is None:
        try:
            newest = batches_of(live).planned
        except StreambankError:
            return None  # it cannot be read now: nothing depends on it
    return None if newest is None or newest <= manifest.batch else (manifest.batch + 1, newest)


def _estimates(request: RestoreRequest, manifest: Manifest) -> tuple[Estimate, ...]:
    control = request.generation or request.control
    if control is None:
        return ()
    return estimates(control, manifest.job, sum(entry.size_bytes for entry in manifest.files))


def _rows(request: RestoreRequest, chosen: Chosen) -> int | None:
    """Rows of state, by the files; else by what Spark said of the batch, where the job's records have it."""
    rows = state_rows(chosen.manifest)
    if rows is not None:
        return rows
    name = QueryRef.parse(chosen.manifest.job).job
    given = request.generation or request.control
    records = (given or JobControl.of_repository(request.repository.store, name)).store
    return reported_rows(records, chosen.manifest)


def _target(request: RestoreRequest, chosen: Chosen, owner: Owner) -> tuple[Store, Generation | None]:
    if request.into is not None:
        return request.into, None
    assert request.generation is not None
    manifest = chosen.manifest

    def taken(location: str) -> bool:
        try:
            check_target(request.opener(location), owner)
        except RefusedError:
            return True
        return False

    generations = request.generation.generations(QueryRef.parse(manifest.job).query)
    base = request.checkpoint or manifest.checkpoint
    current = generations.current()
    marked = marked_generation(current.base if current is not None else base, manifest.job)
    proposed = generations.propose(taken=taken, base=base, above=marked)
    filled = replace(proposed, from_savepoint=manifest.savepoint, by=request.by)
    return request.opener(filled.location), filled


def _left_outputs(request: RestoreRequest, chosen: Chosen, sinks: Sinks) -> dict[str, str]:
    """Output directories that the query has left, now or before the savepoint, each with where it writes.

    What the generation that was saved had left stays left: else an application that was set back would go on
    in the old one, and nothing would refuse it. On a copy these are the outputs that its refresh gave it, of
    any kind; later refreshes made other ones, whose logs are of other batches. Where it is not known which
    generation was saved, what the current one left counts, as long as the savepoint is of the output that it
    went to.
    """
    moved, manifest = sinks.moved_on(), chosen.manifest
    assert request.generation is not None
    generations = request.generation.generations(QueryRef.parse(manifest.job).query).known()
    place, outputs = service_name(manifest.checkpoint), {sink.was for sink in sinks.guarded}
    saved = [one.new_sinks for one in generations if service_name(one.location) == place]
    if saved:
        before = saved[-1]
    else:
        current = generations[-1].new_sinks if generations else {}
        before = {old: new for old, new in current.items() if new in outputs}
    here = outputs | set(moved.values())
    left = {old: moved.get(new, new) for old, new in before.items() if old not in here}
    return {old: new for old, new in (left | moved).items() if old != new}


def _lost_records(request: RestoreRequest, manifest: Manifest) -> str | None:
    """What a person must look at where the job's records are gone: no lease says whether a driver lives."""
    if request.generation is None:
        return None
    if request.generation.generations(QueryRef.parse(manifest.job).query).current() is not None:
        return None
    base = request.checkpoint or manifest.checkpoint
    marked = marked_generation(base, manifest.job)
    if not marked:
        return None
    return (
        f"The records of job {request.generation.name} are gone: there are none at "
        f"{request.generation.store.uri}, though the marker beside {base} names generation {marked}. So no "
        "lease shows whether a driver is alive: make sure that none is."
    )


def _warnings(request: RestoreRequest, chosen: Chosen, sinks: Sinks) -> Iterator[str]:
    for _, error in unknown_versions(request.repository, chosen.manifest.files):
        yield f"{error.message} Spark will refuse it."
    gone_on = sinks.reached is not None and sinks.reached.beyond(chosen.manifest.batch) is not False
    if gone_on and not chosen.manifest.sinks and not sinks.unguarded:
        yield "The savepoint names no sink, so it is not known whether rows would be lost or repeated."
    if (lost := _lost_records(request, chosen.manifest)) is not None:
        yield lost
    asked = QueryRef.parse(chosen.manifest.job)
    if asked.query is not None and request.generation is not None and not request.together:
        yield (
            f"Only query {asked.query} of job {asked.job} goes back to this savepoint: the job's other "
            "queries go on from where they are. Savepoints of several queries are not mutually consistent."
        )
    if request.mode != "fork":
        for old, new in sinks.moved_on().items():
            yield (
                f"The query must write to {new} from its next start on: change the application or its "
                f"declared arguments first. If it goes on in {old}, Spark skips the batches that are there."
            )
    if request.into is not None and request.mode != "fork":
        yield "The restored query keeps its id: never run it beside the one it was taken from."
