"""Removing what work on a job has left and nothing needs any more, by a policy.

A directory goes where it is the job's own, nothing needs it (left_directories.py), it was left for longer
than the policy keeps it, and it is not one of the generations that the policy keeps. All of that is asked
under the job's operation lock, which is checked again and again while files go; so no restore, compaction,
start or reinstatement changes what counts meanwhile. A driver may run beside it: its directory is never among
them.

| step, for a generation | after a crash here |
|---|---|
| 1. a record in `removed/<query>/` | nothing is gone; it never counts again; the next run goes on |
| 2. `commits`, `metadata`, `offsets` go | no query can go on there; the next run goes on |
| 3. everything else goes, and the directory | it is gone |
| 4. the event `generation-removed` | |

What says that another directory is the job's own goes last: the note of a restore that died, the journal of a
rollback, the record of a quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from streambank.cleaning.left_directories import holds_another_checkpoint, left_directories, of_another_job
from streambank.cleaning.left_directory import Kind, LeftDirectory
from streambank.compaction.purge import purge
from streambank.compaction.quarantine import RECORD_KEY, Quarantine
from streambank.control.control import JobControl
from streambank.core.errors import InputError, NotFoundError, RefusedError, StreambankError
from streambank.core.units import say_duration, to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.declaration.places.copies import are_apart
from streambank.declaration.shared import OUTPUT, SCRATCH, STAGED, TABLE, Place, declared_places
from streambank.drills.left import MARKER
from streambank.sinks.file.rollback import JOURNAL_FILES
from streambank.storage import Opener, followed, is_below, is_inside, open_store
from streambank.work.pace import Progress
from streambank.work.remove import remove_tree
from streambank.work.target import METADATA

_log = logging.getLogger(__name__)

OPERATION = "clean"
"""What the operation lock says meanwhile."""
State = Literal["kept", "removable", "removed", "gone", "failed"]
_OVER = ("claim-lost", "records-moved")
"""Codes of errors after which nothing more may be removed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one directory, and why.

    Attributes:
        state: `kept`; `removable` by a plan; `removed`; `gone` where it had vanished meanwhile; `failed`.
    """

    directory: LeftDirectory
    state: State
    why: str
    error: StreambankError | None = None

    def to_dict(self) -> dict[str, Any]:
        error = self.error
        return {
            **self.directory.to_dict(),
            "state": self.state,
            "why": self.why,
            "error": None if error is None else error.message,
            "code": None if error is None else error.code,
        }


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What a cleaning came to by a policy, or by none; and what could not be read: a location, and why."""

    job: str
    dry_run: bool
    policy: GenerationsPolicy | None
    decisions: tuple[Decision, ...]
    unread: tuple[tuple[str, str], ...]

    def having(self, *states: State) -> tuple[Decision, ...]:
        return tuple(one for one in self.decisions if one.state in states)

    @property
    def bytes(self) -> int:
        return sum(one.directory.bytes for one in self.having("removable", "removed"))

    def to_dict(self) -> dict[str, Any]:
        policy = self.policy
        return {
            "job": self.job,
            "dry_run": self.dry_run,
            "policy": None if policy is None else {"keep": policy.keep, "keep_for_s": policy.keep_for_s},
            "directories": [one.to_dict() for one in self.decisions],
            "removed": len(self.having("removable", "removed")),
            "bytes": self.bytes,
            "failed": len(self.having("failed")),
            "unread": [{"location": location, "why": why} for location, why in self.unread],
        }


def decide(
    directories: Sequence[LeftDirectory], policy: GenerationsPolicy | None, now: datetime
) -> list[Decision]:
    """Which directories a policy removes; without one everything is kept."""
    kept = _kept_generations(directories, policy) if policy is not None else set()
    return [_decision(one, policy, kept, now) for one in directories]


def _kept_generations(directories: Sequence[LeftDirectory], policy: GenerationsPolicy) -> set[str]:
    kept: set[str] = set()
    for query in {one.query for one in directories}:
        numbered = [one for one in directories if one.query == query and one.number is not None]
        numbered.sort(key=lambda one: one.since.timestamp() if one.since else 0.0, reverse=True)
        kept |= {one.location for one in numbered[: policy.keep - 1]}
    return kept


def _decision(
    one: LeftDirectory, policy: GenerationsPolicy | None, kept: set[str], now: datetime
) -> Decision:
    if one.needed_by:
        return Decision(one, "kept", f"needed by {one.needed_by}")
    if not one.ours:
        return Decision(
            one,
            "kept",
            "only its name, or a record, says that it is of this job; if it is, remove it yourself: "
            f"{one.removal}",
        )
    if one.refused is not None:
        return Decision(one, "kept", one.refused.message, one.refused)
    if policy is None:
        return Decision(one, "kept", "nothing needs it, and no policy says that it goes")
    if one.location in kept:
        return Decision(one, "kept", f"the newest {policy.keep} generations stay")
    if one.since is None or now - one.since < timedelta(seconds=policy.keep_for_s):
        return Decision(one, "kept", f"it stays for {say_duration(policy.keep_for_s)}")
    return Decision(one, "removable", "nothing needs it")


def clean_job(
    job: Job,
    *,
    jobs: Mapping[str, Job],
    by: Mapping[str, str],
    why: str = "",
    query: str | None = None,
    policy: GenerationsPolicy | None = None,
    dry_run: bool = True,
    now: datetime | None = None,
    control: JobControl | None = None,
    opener: Opener = open_store,
    progress: Progress | None = None,
) -> CleanReport:
    """Remove what work on a job has left and nothing needs any more; a driver may run meanwhile.

    Args:
        jobs: All jobs of its file, by name: nothing goes that lies in a place of theirs, or holds one.

    Raises:
        InputError: There is no policy, and it is no dry run (code `no-clean-policy`).
        ConflictError: Another operation works on the job (`operation-in-progress`), or the lock was lost
            (`claim-lost`).
        StorageError: The records cannot be written. What goes wrong with one directory is in the report.
    """
    records, moment = control or job.records(), now or utc_now()
    rules = policy or job.generations
    if dry_run:
        left = left_directories(job, query, now=moment, records=records)
        decisions = decide(left.directories, rules, moment)
        return CleanReport(job.name, True, rules, tuple(decisions), left.unread)
    if rules is None:
        raise InputError(
            f"Nothing says which directories of job {job.name} go.",
            code="no-clean-policy",
            hint=f"Add [jobs.{job.name}.generations] with rules such as keep = 2, or give --keep 2.",
        )
    with records.operation(OPERATION, by=by) as operation:
        left = left_directories(job, query, now=moment, records=records, operation=operation)
        # Of these those that count are asked for by their records.
        own = {job.checkpoint, *job.queries.values()}
        places = [one for one in declared_places({job.name: job, **jobs}) if one.location not in own]
        work = _Removal(job, records, places, operation.check, by, why, opener, progress)
        done = [work.carry_out(one) for one in decide(left.directories, rules, moment)]
    return CleanReport(job.name, False, rules, tuple(done), left.unread)


@dataclass(frozen=True, slots=True)
class _Removal:
    """Removes one directory after the other, under the operation lock."""

    job: Job
    records: JobControl
    places: Sequence[Place]
    check: Callable[[], None]
    by: Mapping[str, str]
    why: str
    opener: Opener
    progress: Progress | None

    def carry_out(self, decision: Decision) -> Decision:
        """Remove a directory that may go; one that fails does not keep the others from it."""
        if decision.state != "removable":
            return decision
        self.check()
        one = decision.directory
        try:
            self._check_apart(one)
            files, size_bytes = self._remove(one)
        except NotFoundError:
            return replace(decision, state="gone")
        except StreambankError as error:
            if error.code in _OVER:
                raise
            _log.warning("%s could not be removed: %s", one.location, error.message)
            return replace(decision, state="failed", error=error)
        if not files:
            return replace(decision, state="gone")
        self._record(one, files, size_bytes)
        return replace(decision, state="removed")

    def _check_apart(self, one: LeftDirectory) -> None:
        """Whatever the records say: nothing goes that is, holds or is in something alive, of any job."""
        here, checkpoint = followed(one.location), self.job.queries[one.query]
        holds = (
            f"{what} {location} of job {self.job.name}"
            for what, location in self._alive()
            if is_inside(location, here)
        )
        shares = (
            f"{place.what} {place.location} of {place.owner}"
            for place in self.places
            if not are_apart(here, followed(place.location))
            and not (
                is_below(here, place.location)
                # What holds the checkpoint, too, holds whatever lies beside that.
                and (place.what in _BELOW.get(one.kind, ()) or is_below(checkpoint, place.location))
            )
        )
        for what in (*holds, *shares):
            raise _not_apart(one, f"is not apart from {what}")
        if one.kind not in ("generation", "unfinished-restore"):
            return
        nested = holds_another_checkpoint(open_store(one.location))
        other = of_another_job(one.location, self.job.savepoint_name(one.query))
        if nested or other:
            what = f"is in use by {other}" if other else f"holds another checkpoint, or an output: {nested}"
            raise _not_apart(one, what)

    def _alive(self) -> Iterator[tuple[str, str]]:
        yield "the repository", self.job.repository
        yield "the records", self.records.store.uri
        for replica in self.job.replicate.to:
            yield "a replica", replica
        for name, declared in self.job.queries.items():
            current = self.records.generation(name)
            yield "the checkpoint", declared if current is None else current.location
            facts = self.records.query_facts(name) or {}
            if facts.get("sink_path"):
                yield "an output", str(facts["sink_path"])
            for output in current.new_sinks.values() if current is not None else ():
                yield "an output", output

    def _remove(self, one: LeftDirectory) -> tuple[int, int]:
        store = self.opener(one.location)
        if one.kind == "quarantine":
            try:
                report = purge(Quarantine(store), opener=self.opener, progress=self.progress)
                return report.files, report.bytes
            except RefusedError as error:
                if error.code != "quarantine-unfinished":  # of a compaction that broke off
                    raise
                _log.info("%s", error.message)
        if one.kind == "generation" and one.number is not None:
            generations = self.records.generations(one.query)
            if not any(record.data.get("location") == one.location for record in generations.removals.all()):
                generations.record_removal(one.number, one.location, by=self.by, why=self.why)
        first, last = _ORDER.get(one.kind, ((), (METADATA,)))
        return remove_tree(
            store, first=first, last=last, check=self.check, progress=self.progress, judged=one.judged
        )

    def _record(self, one: LeftDirectory, files: int, size_bytes: int) -> None:
        kind = "generation-removed" if one.kind == "generation" else "directory-removed"
        more: dict[str, Any] = {"what": one.kind} if one.number is None else {"generation": one.number}
        self.records.record_event(
            kind,
            query=one.query,
            **more,
            location=one.location,
            files=files,
            bytes=size_bytes,
            left_at=to_json_time(one.since) if one.since else None,
            by=dict(self.by),
            why=self.why,
        )


def _not_apart(one: LeftDirectory, how: str) -> RefusedError:
    return RefusedError(
        f"{one.location} {how}.",
        code="not-apart",
        hint=f"Move that elsewhere, or remove the rest yourself: {one.removal}",
    )


_ORDER: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generation": (("commits", METADATA, "offsets"), ()),
    "output-aside": ((), JOURNAL_FILES),
    "quarantine": ((), (RECORD_KEY,)),
    "drill": ((), (MARKER,)),
}
"""What goes first, and what last."""
_BELOW: dict[Kind, tuple[str, ...]] = {
    "staging": (STAGED,),
    "drill": (SCRATCH,),
    "output-aside": (OUTPUT, TABLE),
}
"""In which declared places directories of a kind are laid out."""
