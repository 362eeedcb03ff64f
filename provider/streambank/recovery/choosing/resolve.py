"""Which savepoint is meant: a reference, or `latest-good`, the newest that verifies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from streambank.core.errors import IntegrityError, NotFoundError
from streambank.core.shape import JsonObject
from streambank.core.units import say_duration, to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.recovery.choosing.older import BY_AGE, unreadable, with_older
from streambank.repository.catalog import (
    batch_of_id,
    candidate_heads,
    glimpse,
    is_rejected,
    listed,
    newest_first,
    none_of,
)
from streambank.repository.manifest import Manifest
from streambank.repository.marks import Marks, Verification
from streambank.repository.references import AsOf, Found, only_job, only_others, parse_reference
from streambank.repository.repository import Repository
from streambank.savepoint.verify import VerifyReport, verify
from streambank.sites.forks import QueryLines
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass(frozen=True, slots=True)
class Skipped(JsonObject):
    """A savepoint that `latest-good` walked past."""

    savepoint: str
    why: str

    @classmethod
    def all_of(cls, reports: Iterable[Mapping[str, Any]]) -> tuple[Skipped, ...]:
        """Those that `skipped` of a plan, or of a report, names as JSON."""
        return tuple(cls(str(one["savepoint"]), str(one["why"])) for one in reports)


@dataclass(frozen=True, slots=True)
class Next:
    """An older savepoint, which could be restored if the chosen one fails.

    Attributes:
        verified: Its last verification; None where it was never verified.
    """

    savepoint: str
    batch: int
    taken_at: datetime
    verified: Verification | None

    def sentence(self, now: datetime) -> str:
        """In a few words, for people."""
        age = say_duration(max(0, round((now - self.taken_at).total_seconds())))
        if self.verified is None:
            return f"{self.savepoint}, batch {self.batch:,}, {age} old, never verified"
        said = f"verified ({self.verified.level}) at {to_json_time(self.verified.at)}"
        return f"{self.savepoint}, batch {self.batch:,}, {age} old, {said}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "savepoint": self.savepoint,
            "batch": self.batch,
            "taken_at": to_json_time(self.taken_at),
            "verified_at": None if self.verified is None else to_json_time(self.verified.at),
            "verified_level": None if self.verified is None else self.verified.level,
            "says": self.sentence(utc_now()),
        }


@dataclass(frozen=True, slots=True)
class PassedOver(JsonObject):
    """A repository or replica that the savepoint does not come from, though it is nearer.

    Attributes:
        why: What is wrong with it, or with the savepoint there.
    """

    location: str
    why: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The savepoint to restore.

    Attributes:
        skipped: Newer ones that are damaged, for `latest-good`; and of all queries of a job those that are
            damaged and closer to the moment of all. For a time those that seem younger, and whose manifest
            does not say when they were taken.
        warnings: What a person should know about how it was chosen.
        as_of: The moment that a reference by time means.
        passed_over: What was wrong with repositories and replicas that were asked first (nearest.py).
    """

    manifest: Manifest
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
    as_of: AsOf | None = None
    passed_over: tuple[PassedOver, ...] = ()


ANY_LINE = QueryLines()
"""Nothing is known of the lines of a query."""
_NOTHING_SAVED = ("no-such-savepoint", "no-repository")


@contextmanager
def hinting_refresh(job: Job | None) -> Iterator[None]:
    """Let the error of a copy that has no such savepoint say how a copy gets one of the live job's.

    Args:
        job: Whose savepoint is asked for; None where no job is declared.
    """
    try:
        yield
    except NotFoundError as error:
        if error.code in _NOTHING_SAVED and job is not None and job.copy is not None:
            live = job.original.name if job.original is not None else job.name
            error.hint = (
                f"A restore on the copy {job.copy.name} takes only the copy's own savepoints. One of the "
                f"live job becomes the copy by a refresh: the verb fork ({live} {job.copy.name}), or the DAG "
                f"{live}.refresh.{job.copy.name}."
            )
        raise


def choose(
    repository: Repository,
    reference: str,
    job: str | None,
    *,
    record: bool,
    by: Mapping[str, Any] | None = None,
    pace: Pace = DEFAULT_PACE,
    lines: QueryLines = ANY_LINE,
    level: Literal["quick", "full"] = "quick",
    beside: Sequence[str] | None = None,
) -> Chosen:
    """Find the savepoint and make sure that it is whole.

    Where the one that a time or `latest` means is damaged, the error names the newest older one that
    verifies.

    Args:
        reference: Any of `repository/references.py`; `latest-good` is the newest that verifies.
        job: `job` or `job/query`; may be left out where that leaves no choice.
        record: Leave the result of verifications beside the manifests, where that is possible.
        lines: Which savepoints are of the line of the query. `latest-good` skips others; `latest`, a batch
            and a time mean none of another query.
        level: How a savepoint that is named is verified; `latest-good` always reads every byte.
        beside: The other queries, each as `job/query`, where the reference is of all queries of a job.

    Raises:
        InputError: `ambiguous`, or `which-job`: there are several jobs; or it is no reference.
        NotFoundError: `no-such-savepoint`, or `no-good-savepoint`: none verifies.
        IntegrityError: The one that was named is damaged.
    """
    asked = parse_reference(reference)
    if asked.kind == "latest-good":
        place = only_job(repository.store, asked.within(job))
        return _latest_good(repository, place, record, by, pace, lines)
    others: list[tuple[Manifest, str]] = []
    known = lines if job is None else lines.knowing(candidate_heads(repository.store, job))
    found = repository.resolve(reference, job, leave_out=leaving_out(known, others))
    place, savepoint = found.job, found.savepoint
    head = glimpse(repository.store, place, savepoint) if asked.kind in BY_AGE else None
    skipped = tuple(
        Skipped(one.savepoint, why) for one, why in others if head is None or one.taken_at >= head.taken_at
    )
    try:
        if head is not None:
            hidden = unreadable([repository.store], head, found.as_of.at if found.as_of else None)
            skipped += tuple(Skipped(one, UNREADABLE) for one in hidden.later)
            if hidden.meant:
                head = None
                raise hidden.error(place, asked.said)
        repository.signatures.require_key(place, savepoint)
        manifest = repository.load(place, savepoint)
        require_whole(verify(repository, place, savepoint, level, pace=pace, record=False))
    except IntegrityError as error:
        if asked.kind not in BY_AGE:
            raise
        raise name_older(
            error, repository, found, asked.said, head, lines=lines, pace=pace, beside=beside
        ) from error
    return Chosen(manifest, skipped, as_of=found.as_of)


def name_older(
    error: IntegrityError,
    repository: Repository,
    found: Found,
    said: str,
    meant: Manifest | None,
    *,
    lines: QueryLines = ANY_LINE,
    pace: Pace = DEFAULT_PACE,
    beside: Sequence[str] | None = None,
) -> IntegrityError:
    """The same error, with the newest older savepoint of the query that verifies (`older.with_older`).

    Args:
        meant: Its manifest; None where that one cannot be read.
    """
    summaries = repository.candidates(found.job)
    lines = lines.knowing(summaries)
    summaries = [one for one in summaries if not lines.why_not(one)]

    def verifies(savepoint: str) -> bool:
        return verify(repository, found.job, savepoint, "full", pace=pace, record=False).restorable

    others = None if beside is None else [_moments(repository, one) for one in beside]
    as_of = found.as_of.at if found.as_of else None
    return with_older(error, said, meant, summaries, verifies, as_of=as_of, beside=others)


def _moments(repository: Repository, job: str) -> list[datetime]:
    return [one.taken_at for one in repository.candidates(job) if one.taken_at is not None]


UNREADABLE = "Its manifest cannot be read, so it is not known when it was taken."
"""Why a savepoint that seems younger than a moment is skipped."""
NEXT = 3
"""How many older savepoints a plan names."""
_LOOKED_INTO = 50
"""How many savepoints of later batches are looked into for older ones."""


def next_ones(repository: Repository, manifest: Manifest, lines: QueryLines = ANY_LINE) -> tuple[Next, ...]:
    """Older savepoints of the same query, the newest first: what could be restored if this one fails.

    Those that a verification has found damaged are left out. Only the beginnings of manifests are read.
    """
    ids = [savepoint for job, savepoint in listed(repository.store, manifest.job) if job == manifest.job]
    ids.sort(key=lambda savepoint: (batch_of_id(savepoint), savepoint), reverse=True)
    before = [savepoint for savepoint in ids if batch_of_id(savepoint) <= manifest.batch]
    # Of a generation that was left a savepoint may be older, and of a later batch.
    left = [savepoint for savepoint in ids if batch_of_id(savepoint) > manifest.batch][:_LOOKED_INTO]
    found: list[Next] = []
    for savepoint in (*before, *left):
        head = glimpse(repository.store, manifest.job, savepoint)
        if head is None or head.taken_at >= manifest.taken_at or is_rejected(repository.store, head):
            continue
        if lines.why_not(head):
            continue
        verified = Marks(repository.store, manifest.job, savepoint).readable_verification()
        if verified is None or verified.ok:
            found.append(Next(savepoint, head.batch, head.taken_at, verified))
        if len(found) == NEXT:
            break
    return tuple(found)


def as_of_json(as_of: AsOf | None) -> dict[str, str | None]:
    """The moment that a reference by time means, and the zone in which it was read, as JSON."""
    return {
        "as_of": None if as_of is None else to_json_time(as_of.at),
        "as_of_zone": None if as_of is None else as_of.zone,
    }


def require_whole(report: VerifyReport) -> None:
    """Raise the first thing that makes a savepoint useless.

    Raises:
        IntegrityError: `savepoint-damaged`.
    """
    problems = [finding for finding in report.findings if finding.severity == "error"]
    if problems:
        more = f" ({len(problems) - 1} more findings)" if len(problems) > 1 else ""
        raise IntegrityError(
            f"Savepoint {report.savepoint} of {report.job} is damaged: {problems[0].file}: "
            f"{problems[0].cause}{more}",
            code="savepoint-damaged",
            hint=problems[0].hint,
        )


def unrecorded(report: VerifyReport) -> tuple[str, ...]:
    """What a verification could not leave behind."""
    return tuple(finding.cause for finding in report.findings if finding.code == "not-recorded")


def leaving_out(lines: QueryLines, others: list[tuple[Manifest, str]]) -> Callable[[Manifest], bool]:
    """Whether a savepoint is not meant by a reference that names none, since it is of another line."""

    def leave_out(head: Manifest) -> bool:
        why = lines.why_another(head)
        others.extend([(head, why)] if why else ())
        return bool(why)

    return leave_out


def first_whole(
    repository: Repository,
    job: str,
    savepoints: Iterable[str],
    *,
    record: bool,
    by: Mapping[str, Any] | None,
    pace: Pace,
) -> tuple[Chosen | None, list[Skipped]]:
    """The first of some savepoints of a query of which every byte is right, and those before it.

    Raises:
        RefusedError: It is signed, and there is no key (code `signing-key-missing`).
    """
    damaged: list[Skipped] = []
    for savepoint in savepoints:
        try:
            report = verify(repository, job, savepoint, "full", pace=pace, record=record, by=by)
            if report.restorable:
                repository.signatures.require_key(job, savepoint)
                return Chosen(repository.load(job, savepoint), warnings=unrecorded(report)), damaged
        except NotFoundError as error:
            if error.code != "no-such-savepoint":
                raise
            damaged.append(Skipped(savepoint, "It has expired meanwhile."))
            continue
        problem = next(finding for finding in report.findings if finding.severity == "error")
        damaged.append(Skipped(savepoint, f"{problem.file}: {problem.cause}"))
    return None, damaged


def _latest_good(
    repository: Repository,
    job: str,
    record: bool,
    by: Mapping[str, Any] | None,
    pace: Pace,
    lines: QueryLines,
) -> Chosen:
    summaries = [summary for summary in repository.manifests(job) if summary.job == job]
    unreadable = [Skipped(one.savepoint, one.error.message) for one in summaries if one.error is not None]
    readable = [one for one in summaries if one.error is None and not one.rejected]
    lines = lines.knowing(readable)
    others = {one.savepoint: lines.why_not(one) for one in newest_first(readable)}
    own = [one for one in readable if not others[one.savepoint]]
    passed = [Skipped(savepoint, why) for savepoint, why in others.items() if why]
    if readable and not (own or unreadable):
        raise only_others([(job, savepoint) for savepoint in others])
    newest = [one.savepoint for one in newest_first(own)]
    found, damaged = first_whole(repository, job, newest, record=record, by=by, pace=pace)
    if found is not None:
        return replace(found, skipped=(*unreadable, *passed, *damaged))
    skipped = [*passed, *damaged, *unreadable]  # the newest first, as far as can be told
    if not skipped:
        raise none_of(repository.store, job)
    raise NotFoundError(
        f"None of the {len(skipped)} savepoints of {job} verifies; the newest: {skipped[0].why}",
        code="no-good-savepoint",
        hint="`streambank verify --all` shows what is wrong with each. A replica may have a good one: "
        "`restore --from nearest` asks those that the job declares.",
    )
