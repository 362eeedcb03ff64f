"""Everything of a restore that comes before its first write: how things stand, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.copies import outputs_unknown
from streambank.control.generations import Generation
from streambank.control.marker import marked_generation, records_root
from streambank.control.place import INSIDE, SUFFIX, moved_to
from streambank.core.choices import ROLLBACKS, SINK_CHOICES, SOURCE_CHOICES, SinkChoice
from streambank.core.errors import InputError, RefusedError, StorageError, StreambankError
from streambank.core.names import QueryRef
from streambank.driver.preflight import DeclaredQuery, held_elsewhere
from streambank.inputs.folders import folders_of_savepoint
from streambank.inputs.replayable import replays_of
from streambank.inputs.sources import Sources, look_at_sources
from streambank.recovery.choices import SinkChoices
from streambank.recovery.choosing.resolve import ANY_LINE, Chosen, next_ones
from streambank.recovery.estimates import estimates
from streambank.recovery.plan import RestorePlan, age_s, reported_rows, state_rows
from streambank.recovery.request import RestoreRequest
from streambank.recovery.sinks.reached import Reached
from streambank.recovery.sinks.readers import Reader, readers_of, said_of_readers
from streambank.recovery.sinks.sinks import Sinks, check_stands_at, refusals, to_roll_back, warnings
from streambank.recovery.sinks.standing import sinks_at
from streambank.repository.catalog import candidate_heads
from streambank.repository.manifest import Manifest
from streambank.savepoint.formats import unknown_versions
from streambank.savepoint.materialize import Owner, check_target
from streambank.savepoint.warnings import left_out
from streambank.sinks.ledger import KIND as LEDGER
from streambank.sites.forks import QueryLines
from streambank.storage import is_inside, open_store, service_name
from streambank.storage.store import Store
from streambank.work.target import check_target_apart


@dataclass(frozen=True, slots=True)
class Prepared:
    """A restore up to the point where it would begin to write."""

    chosen: Chosen
    plan: RestorePlan
    sinks: Sinks
    target: Store
    generation: Generation | None


def records_of(request: RestoreRequest, chosen: Chosen) -> JobControl | None:
    """The records of the job that has to stand still; None where there are none, or for a fork.

    Raises:
        InputError: `another-job`: the caller's records are those of another job.
        RefusedError: `other-records`: they are only guessed, and the job's are elsewhere.
    """
    name = QueryRef.parse(chosen.manifest.job).job
    given = request.records
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


def lines_by(request: RestoreRequest, job: str | None = None) -> QueryLines:
    """Which savepoints are of the line of the query of a request; all where no records of it say so.

    Args:
        job: `job` or `job/query`, where the request does not name it.

    Raises:
        StreambankError: See `QueryLines.of`.
    """
    control, asked = request.records, request.job or job
    if control is None or asked is None or QueryRef.parse(asked).job != control.name:
        return ANY_LINE
    return QueryLines.of(control, QueryRef.parse(asked).name)


def prepare(
    request: RestoreRequest,
    chosen: Chosen,
    owner: Owner,
    against: list[StreambankError],
    readers: Sequence[Reader] | None = None,
) -> Prepared:
    """Look at everything, and decide nothing: what speaks against the restore is in the plan.

    Args:
        readers: Who reads what is taken back, where that is known already; None to look.
    """
    manifest = chosen.manifest
    if request.into is not None:
        check_target_apart(request.into.uri, request.repository.store.uri, manifest.checkpoint)
    target, generation = _target(request, chosen, owner)
    # A query that stands where the savepoint is reads on from there, whatever it is restored into.
    live = live_checkpoint(request, manifest)
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
    among_data = list(_among_data(request, manifest, target.uri, live, found))
    against += (one for one in among_data if isinstance(one, StreambankError))
    by_sinks = _sink_refusals(request, chosen, found)
    choices = request.sink_choices
    sinks = found.under(choices, request.mode)
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
    heads = candidate_heads(request.repository.store, manifest.job)
    lines = lines_by(request, manifest.job).knowing(heads)
    size_bytes = sum(entry.size_bytes for entry in manifest.files)
    back = _taken_back(sinks, choices)
    if readers is None:
        readers = readers_of(back, request.jobs_file, manifest.job, request.restored_too)
    plan = RestorePlan(
        savepoint=manifest.savepoint,
        job=manifest.job,
        batch=manifest.batch,
        query_id=manifest.query_id,
        taken_at=manifest.taken_at,
        age_s=age_s(manifest),
        files=len(manifest.files),
        bytes=size_bytes,
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
        estimates=() if request.records is None else estimates(request.records, manifest.job, size_bytes),
        next=next_ones(request.repository, manifest, lines),
        as_of=chosen.as_of,
        skipped=tuple({one.savepoint: one for one in (*request.skipped, *chosen.skipped)}.values()),
        refusals=(*against, *by_sinks[request.sink], *by_sources[request.source]),
        other_refusals=tuple(against),
        sink_refusals=by_sinks,
        source_refusals=by_sources,
        warnings=(
            *(one for one in among_data if isinstance(one, str)),
            *_warnings(request, chosen, sinks),
            *warnings(sinks, choices, request.mode),
            *said_of_readers(back, readers, manifest.job),
            *sources.warnings(request.source),
        ),
        readers=tuple(readers),
        another_line=lines.why_another(manifest) or lines.why_unknown(manifest),
    )
    return Prepared(chosen, plan, sinks, target, generation)


def _among_data(
    request: RestoreRequest, manifest: Manifest, target: str, live: str, sinks: Sinks
) -> Iterator[StreambankError | str]:
    """What speaks against a target among a query's data; a warning where its checkpoint is there, too."""
    outputs = [place.uri for sink in sinks.guarded for place in (sink.store, sink.new) if place is not None]
    folders = folders_of_savepoint(request.repository, manifest, outputs)
    others = folders.without({manifest.checkpoint, live, request.checkpoint or live})
    if (refused := others.refusal(target, "target")) is not None:
        yield refused
    elif (same := folders.refusal(target, "target")) is not None:
        yield f"{same.message} So does the checkpoint that there is."
    if (doubt := others.doubt(target, "target")) is not None:
        yield doubt


def _sink_refusals(
    request: RestoreRequest, chosen: Chosen, found: Sinks
) -> dict[SinkChoice, tuple[StreambankError, ...]]:
    """What speaks against each choice for the sinks, of those that the mode has."""
    of = request.sink_of
    if request.together:  # some name sinks of the other queries
        of = {path: choice for path, choice in of.items() if path in found.paths}
    choices: list[SinkChoice] = [
        one for one in SINK_CHOICES if request.mode != "fork" or one not in ROLLBACKS
    ]
    by_choice = {}
    for one in choices:
        picked = SinkChoices(one, of)
        by_choice[one] = refusals(found.under(picked, request.mode), picked, request.mode)
    if request.into is not None and "rollback" in by_choice:
        try:
            records_of(replace(request, sink="rollback"), chosen)
        except RefusedError as error:
            for one in ROLLBACKS:
                by_choice[one].insert(0, error)
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
    if request.generation is None:
        return manifest.checkpoint
    current = request.generation.generation(QueryRef.parse(manifest.job).query)
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


def _rows(request: RestoreRequest, chosen: Chosen) -> int | None:
    """Rows of state, by the files; else by what Spark said of the batch, where the job's records have it."""
    rows = state_rows(chosen.manifest)
    if rows is not None:
        return rows
    name = QueryRef.parse(chosen.manifest.job).job
    records = request.records or JobControl.of_repository(request.repository.store, name)
    return reported_rows(records.store, chosen.manifest)


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
    if current is not None and request.checkpoint is not None:
        try:
            generations.check_of([current], request.checkpoint)
        except RefusedError:  # because another one is declared by now, or because this record is altered
            generations.check_of(generations.known(), request.checkpoint)
            raise
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


def _taken_back(sinks: Sinks, choices: SinkChoices) -> list[str]:
    """The outputs that others may read and that have something to take back."""
    files, tables = to_roll_back(sinks, choices)
    outputs = [one.store.uri for one in files if not one.standing.nothing_later]
    return outputs + [
        one.standing.path for one in tables if one.standing.safe is False and one.guard.kind != LEDGER
    ]


def _warnings(request: RestoreRequest, chosen: Chosen, sinks: Sinks) -> Iterator[str]:
    for _, error in unknown_versions(request.repository, chosen.manifest.files):
        yield f"{error.message} Spark will refuse it."
    if (lacks := left_out(chosen.manifest)) is not None:
        yield lacks
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
