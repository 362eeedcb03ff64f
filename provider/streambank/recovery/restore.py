"""Restoring a savepoint: into an empty directory, or into the next generation of its job.

The order of steps, on which everything rests:

1. The savepoint is chosen and verified.
2. The job is held: its operation lock, and its lease, so that no driver lives and none can start. The
   savepoint is held too, so that it is neither expired nor swept while it is read.
3. Target and sinks are looked at; what speaks against the restore is raised here.
4. The files are laid out, hashed on the way; `metadata` is a note that no Spark starts from
   (savepoint/materialize.py).
5. The locks are checked and Kafka sources are looked at once more, the sinks are taken back where that was
   chosen (which is noted right before the first of them is changed: control/rollbacks.py), and new outputs
   begun.
6. The real `metadata` is written: the target is a checkpoint from here on.
7. The job's generation is switched: one conditional create.
8. The report is left behind, and the savepoint is claimed where that was chosen.

What fails before step 6 leaves no target behind, and no note where no sink was changed. A rollback of a sink
that was cut off is finished by the next restore; until then, and after any rollback, no checkpoint that is
further than the sink may be used: a job is not started from one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from streambank.control.claims import Claim
from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.marker import renew_marker
from streambank.control.operation import Operation
from streambank.control.records import leaving_word
from streambank.control.rollbacks import RollbackNote
from streambank.control.target_owner import is_live, restoring
from streambank.core.environment import user_name
from streambank.core.errors import IntegrityError, RefusedError, StorageError, StreambankError
from streambank.core.names import MAIN, QueryRef
from streambank.core.units import utc_now
from streambank.inputs.sources import check_still_there
from streambank.recovery.choosing.older import BY_AGE
from streambank.recovery.choosing.resolve import Chosen, choose, name_older
from streambank.recovery.lay_out import remembering_damage
from streambank.recovery.plan import RestorePlan
from streambank.recovery.preconditions import Prepared, lines_by, live_checkpoint, prepare, records_of
from streambank.recovery.report import RestoreReport, write_beside
from streambank.recovery.request import RestoreRequest, check_request
from streambank.recovery.sinks.readers import Reader
from streambank.recovery.sinks.sinks import SinkRollback, begin_outputs, roll_back_sinks, to_roll_back
from streambank.recovery.sinks.standing import check_still_at
from streambank.repository.holds import Holds
from streambank.repository.marks import RESTORED, add_mark
from streambank.repository.references import Found, parse_reference
from streambank.savepoint.materialize import MaterializeReport, Owner, materialize
from streambank.savepoint.verify import verify
from streambank.sinks.file.fresh_log import NewOutput
from streambank.work.executor import DEFAULT_PACE, Pace

OPERATION = "restore"


@dataclass(frozen=True, slots=True)
class Held:
    """The job, held: no driver runs it, and no other operation works on it."""

    control: JobControl
    operation: Operation
    lease: Claim

    def check(self) -> None:
        self.operation.check()
        self.lease.check()


def plan_restore(
    request: RestoreRequest, *, pace: Pace = DEFAULT_PACE, held: bool = False, whole: bool = False
) -> RestorePlan:
    """What `restore` would do with the same request. Writes nothing.

    What speaks against it is in `refusals` of the plan, for a person to decide; a savepoint that does not
    exist or is damaged, and a call that is wrong in itself, are raised.

    Args:
        held: The caller holds the job.
        whole: Read every byte of a savepoint that is named, too: for a person who decides by the plan
            whether a job is stopped. `restore` reads them all before it touches anything, but the job stands
            by then.

    Raises:
        InputError, NotFoundError, IntegrityError, FormatError, StorageError: As `restore`.
    """
    check_request(request)
    chosen = request.chosen or choose(
        request.repository,
        request.reference,
        request.job,
        record=False,
        pace=pace,
        lines=lines_by(request),
        level="full" if whole else "quick",
    )
    against: list[StreambankError] = []
    try:
        records = records_of(request, chosen)
    except RefusedError as error:
        if request.generation is not None:  # for a directory it depends on what is chosen: see `prepare`
            against.append(error)
        records = None
    if records is not None and not held:
        view = records.lease.view()
        doubt = records.lease.doubt(view)
        if view is not None and not view.free:
            against.append(_or_beside(records.lease.refusal(view), request))
        elif doubt is not None:
            against.append(doubt)
    if records is not None and _changes_job(request):
        try:
            records.check_site()
        except RefusedError as error:
            against.append(error)
    owner = Owner({}, is_live, exclusive=request.generation is not None)
    with _naming_older(request, chosen, pace):
        return prepare(request, chosen, owner, against).plan


def restore(
    request: RestoreRequest,
    *,
    pace: Pace = DEFAULT_PACE,
    held: Held | None = None,
    readers: Sequence[Reader] | None = None,
) -> RestoreReport:
    """Restore a savepoint.

    Args:
        held: The job, where the caller holds it already (`hold_job`).
        readers: Who reads what is taken back, by a plan of the same restore: a job that stands does not wait
            until they are looked for again.

    Raises:
        InputError: The call is wrong in itself.
        NotFoundError: There is no such savepoint, or not any more, or none that verifies.
        IntegrityError: The savepoint is damaged.
        RefusedError: A live owner holds the job, the target is not empty, a sink would lose or repeat
            rows, or Kafka has not all of the input any more.
        ConflictError: Another operation works on the job, or restores into the same directory.
        StorageError: The environment failed; nothing half done is left that a query could start from.
    """
    request = replace(request, by={"user": user_name(), "host": socket.gethostname(), **request.by})
    repository, generation = request.repository, request.generation
    check_request(request)
    started, began = utc_now(), time.monotonic()
    chosen = request.chosen or choose(
        repository,
        request.reference,
        request.job,
        record=True,
        by=request.by,
        pace=pace,
        lines=lines_by(request),
    )
    with (
        _holding(request, chosen, held) as held,
        restoring(exclusive=held is not None and generation is not None) as owner,
    ):
        holds = Holds(repository, OPERATION, request.by)
        with (
            holds.held(chosen.manifest.job, chosen.manifest.savepoint),
            _naming_older(request, chosen, pace),
        ):
            prepared = prepare(request, chosen, owner, [], readers)
            prepared.plan.check()
            report = _write(request, prepared, owner, held, pace)
        warned = report.warnings + tuple(holds.warnings)
        if prepared.generation is not None and generation is not None and held is not None:
            query = QueryRef.parse(chosen.manifest.job).query
            # Not before: records of a job that are lost must not look like all there is where this fails.
            _ensure_first(request, chosen)
            # Before: a restore after a crash in between must not bring back the state that was replaced.
            warned += _prefer(request, chosen, report.layout.target)
            generation.generations(query).switch(prepared.generation, operation=held.operation)
            warned += _mark(chosen, prepared.generation, generation)
        seconds = time.monotonic() - began
        report = replace(report, warnings=warned, started_at=started, seconds=seconds)
        _leave(request, report)
        if request.mode == "claim":
            _claim(request, chosen, report.layout.target)
        return report


@contextmanager
def _naming_older(request: RestoreRequest, chosen: Chosen, pace: Pace) -> Iterator[None]:
    """Let the error of a damaged savepoint that a time or `latest` means name the next older one."""
    asked = parse_reference(request.reference)
    try:
        yield
    except IntegrityError as error:
        manifest = chosen.manifest
        if asked.kind not in BY_AGE or request.chosen is not None:
            raise
        if verify(
            request.repository, manifest.job, manifest.savepoint, "full", pace=pace, record=False
        ).restorable:
            raise  # something else is damaged, such as the job's records
        found, lines = Found(manifest.job, manifest.savepoint), lines_by(request)
        named = name_older(error, request.repository, found, asked.said, manifest, lines=lines, pace=pace)
        raise named from error


@contextmanager
def hold_job(
    control: JobControl,
    *,
    by: Mapping[str, str],
    operation: Operation | None = None,
    any_site: bool = False,
) -> Iterator[Held]:
    """Hold a job: no driver lives, none can start, and no other operation works on it.

    Args:
        operation: The operation lock, where the caller holds it already (an upgrade).
        any_site: Also at a site of the job that is not the active one.

    Raises:
        RefusedError: A driver lives, or may live (codes `lease-held`, `lease-in-doubt`), or another site is
            the active one (`failed-over`, `failing-over`, `sites-disagree`).
        ConflictError: Another operation works on the job.
    """
    lock: AbstractContextManager[Operation] = (
        nullcontext(operation)
        if operation is not None
        else control.operation(OPERATION, by=by, any_site=any_site)
    )
    with lock as locked, control.lease.held(OPERATION, by=by) as lease:
        yield Held(control, locked, lease)


@contextmanager
def _holding(request: RestoreRequest, chosen: Chosen, held: Held | None) -> Iterator[Held | None]:
    """The job, held; None where there are no records, or for a fork."""
    control = records_of(request, chosen)
    if control is None or held is not None:
        yield held
        return
    with ExitStack() as stack:
        try:
            found = stack.enter_context(hold_job(control, by=request.by, any_site=not _changes_job(request)))
        except RefusedError as error:
            raise _or_beside(error, request) from None
        yield found


def _changes_job(request: RestoreRequest) -> bool:
    """Whether a restore changes the job, as a copy elsewhere that leaves the sinks alone does not."""
    return request.generation is not None or request.rolls_back


def _or_beside(error: RefusedError, request: RestoreRequest) -> RefusedError:
    """The same refusal; for a directory it also names the way that needs no stop."""
    if request.into is None or error.code != "lease-held":
        return error
    beside = "To restore a copy beside the running job, give --mode fork."
    return RefusedError(error.message, code=error.code, hint=f"{error.hint} {beside}")


def _ensure_first(request: RestoreRequest, chosen: Chosen) -> None:
    """A job that was never started under Streambank has its declared checkpoint as generation 1."""
    assert request.generation is not None
    generations = request.generation.generations(QueryRef.parse(chosen.manifest.job).query)
    if generations.current() is None:
        generations.ensure_first(request.checkpoint or chosen.manifest.checkpoint, by=request.by)


def _prefer(request: RestoreRequest, chosen: Chosen, location: str) -> tuple[str, ...]:
    """Let `latest-good` mean a savepoint with changed state, and no longer the one that it was made from."""
    repository, manifest = request.repository, chosen.manifest
    if manifest.derived_from is None:
        return ()
    place = (repository.store, repository.digest_name, manifest.job, manifest.savepoint)
    try:
        add_mark(*place, RESTORED, by=request.by, fields={"location": location})
    except StreambankError as error:
        return (
            f"That savepoint {manifest.savepoint} was restored could not be recorded: {error.message} Until "
            f"the job's next savepoint `latest-good` means {manifest.derived_from}, with the state before "
            "the change.",
        )
    return ()


def _mark(chosen: Chosen, generation: Generation, control: JobControl) -> tuple[str, ...]:
    """Let the marker beside the declared checkpoint say which generation counts; why it does not, if so.

    After the switch: one that comes too late is only less of a guard, one too early would name a generation
    that never was.
    """
    asked = QueryRef.parse(chosen.manifest.job)
    why = renew_marker(
        generation.base,
        job=asked.job,
        query=asked.name,
        generation=generation,
        control=control,
        by=generation.by,
    )
    return () if why is None else (f"The marker beside {generation.base} could not be written: {why}",)


def _link_warning(layout: MaterializeReport) -> Iterator[str]:
    if layout.linked_files:
        yield (
            f"{layout.linked_files} files share their bytes with the repository: damage to one damages both, "
            "so the savepoint is no independent backup while the checkpoint has them."
        )


def _rollback_warning(checkpoint: str, rolled_back: Sequence[SinkRollback]) -> Iterator[str]:
    if any(report.changed for report in rolled_back):
        yield (
            f"The sinks are at the savepoint's batch now: a query that went on from {checkpoint}, or from "
            "another checkpoint that is further, would leave a gap in its output."
        )


def _write(
    request: RestoreRequest,
    prepared: Prepared,
    owner: Owner,
    held: Held | None,
    pace: Pace,
) -> RestoreReport:
    """Lay out, take the sinks back or begin new outputs, and make the target a checkpoint."""
    manifest, started = prepared.chosen.manifest, utc_now()
    rolled_back: list[SinkRollback] = []
    begun: list[NewOutput] = []

    def before_commit(layout: MaterializeReport) -> None:
        if held is not None:
            held.check()
            if _changes_job(request):
                held.control.check_site()
        if not request.unmoved:
            live = live_checkpoint(request, manifest) if held is None else None
            check_still_there(request.repository, manifest, request.kafka, request.source, live)
        check_still_at(request, manifest, prepared.sinks)
        noted = () if held is None else _noted(request, prepared, held)
        for done in roll_back_sinks(prepared.sinks, request.sink_choices, manifest, *noted):
            rolled_back.append(done)
            if held is not None and done.changed:
                held.control.record_event(
                    "sink-rolled-back",
                    query=QueryRef.parse(manifest.job).query or MAIN,
                    savepoint=manifest.savepoint,
                    by=dict(request.by),
                    sink=done.to_dict(),
                )
        begun.extend(begin_outputs(prepared.sinks))
        if held is not None and (rolled_back or begun):
            held.check()
        if request.generation is None:
            # Before it is a checkpoint: another try of who dies right after that must find what it was.
            # Where that cannot be written it is said at the end, when the restore is done.
            report = _report(request, prepared, layout, rolled_back, begun, started)
            with suppress(StreambankError):
                write_beside(request.opener, layout.target, report.to_dict())

    with remembering_damage(request.repository, manifest, request.by):
        layout = materialize(
            request.repository,
            manifest,
            prepared.target,
            owner=owner,
            link=request.link,
            fork=request.mode == "fork",
            before_commit=before_commit,
            pace=pace,
        )
    return _report(request, prepared, layout, rolled_back, begun, started)


def _report(
    request: RestoreRequest,
    prepared: Prepared,
    layout: MaterializeReport,
    rolled_back: Sequence[SinkRollback],
    begun: Sequence[NewOutput],
    started: datetime,
) -> RestoreReport:
    plan, chosen = prepared.plan, prepared.chosen
    return RestoreReport(
        plan=plan,
        layout=layout,
        rolled_back=tuple(one.to_dict() for one in rolled_back),
        new_outputs=tuple(one.to_dict() for one in begun),
        warnings=(
            *([plan.another_line] if plan.another_line else ()),
            *plan.warnings,
            *chosen.warnings,
            *_link_warning(layout),
            *_rollback_warning(chosen.manifest.checkpoint, rolled_back),
        ),
        started_at=started,
        seconds=(utc_now() - started).total_seconds(),
        by=request.by,
    )


def _noted(
    request: RestoreRequest, prepared: Prepared, held: Held
) -> tuple[Callable[[], object], Callable[[str], AbstractContextManager[object]]]:
    """What notes that sinks are rolled back: all file sinks at once, and each table around its change."""
    manifest = prepared.chosen.manifest
    files, _ = to_roll_back(prepared.sinks, request.sink_choices)
    note = RollbackNote(
        held.control,
        QueryRef.parse(manifest.job).query,
        savepoint=manifest.savepoint,
        batch=manifest.batch,
        location=prepared.target.uri,
        by=request.by,
    )

    @cache  # once for all of them
    def before_files() -> None:
        held.check()  # each sink was asked once more since
        note.files([sink.store for sink in files])

    @contextmanager
    def changing(table: str) -> Iterator[None]:
        held.check()
        with note.table(table):
            yield

    return before_files, changing


def _claim(request: RestoreRequest, chosen: Chosen, location: str) -> None:
    """The savepoint belongs to the restored query now: nothing but its job's retention keeps it."""
    repository, manifest = request.repository, chosen.manifest
    try:
        add_mark(
            repository.store,
            repository.digest_name,
            manifest.job,
            manifest.savepoint,
            "claimed",
            by=request.by,
            fields={"location": location},
        )
        if repository.pinned(manifest.job, manifest.savepoint):
            repository.unpin(manifest.job, manifest.savepoint, by=request.by, note="claimed by a restore")
    except StreambankError as error:
        raise StorageError(
            f"The restore into {location} is done, but the savepoint was not claimed: {error.message}",
            code="not-claimed",
            hint="Go on with the restored checkpoint; `streambank unpin` lets retention decide about it.",
        ) from error


def _leave(request: RestoreRequest, report: RestoreReport) -> None:
    with leaving_word(
        f"The restore into {report.layout.target} is done, but not its report",
        "Go on with the restored checkpoint; there is no need to restore again.",
    ):
        if request.generation is not None:
            request.generation.stream("restores").append(report.to_dict())
        else:
            write_beside(request.opener, report.layout.target, report.to_dict())
