"""Where a savepoint is restored from: the job's repository, a replica, or the nearest of them that is whole.

Near means cheap to read, by a simple rule: first what lies where the target does (the same bucket, or both on
this machine's disks), then what is on this machine's disks, then the rest; among equals the repository first,
then the replicas as they are declared. Which savepoint is meant does not depend on that: the newest that any
of them has. Those that do not answer, or have it damaged, are passed over, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StorageError
from streambank.recovery.choosing.older import BY_AGE, Unreadable, unreadable, with_older
from streambank.recovery.choosing.resolve import (
    ANY_LINE,
    UNREADABLE,
    Chosen,
    PassedOver,
    Skipped,
    leaving_out,
    require_whole,
    unrecorded,
)
from streambank.repository.catalog import (
    SavepointSummary,
    candidate_heads,
    glimpse,
    newest_first,
    none_of,
    only_rejected,
)
from streambank.repository.manifest import Manifest
from streambank.repository.marks import REHEARSAL, RESTORED
from streambank.repository.references import Found, parse_reference
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.sites.forks import QueryLines
from streambank.storage import local_path, scheme_of
from streambank.work.executor import DEFAULT_PACE, Pace

NEAREST = "nearest"
"""What stands for the nearest place that has the savepoint undamaged."""
PASSED_OVER = (NotFoundError, IntegrityError, FormatError, StorageError)
"""What is wrong with a place, or a savepoint in it, where another place may be well."""
_OLDEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReachedRepository:
    """A repository or replica that answered."""

    location: str
    repository: Repository


def by_distance(locations: Sequence[str], target: str) -> list[str]:
    """Locations, the nearest to a target first; see the module."""
    return sorted(dict.fromkeys(locations), key=lambda one: _distance(one, target))


def _distance(location: str, target: str) -> int:
    if _service(location) == _service(target):
        return 0
    return 1 if local_path(location) is not None else 2


def _service(location: str) -> tuple[str, str]:
    """What two locations share where one service copies between them: the bucket, or the disks."""
    if local_path(location) is not None:
        return "file", ""
    scheme = scheme_of(location)
    return ("s3" if scheme in ("s3a", "s3n") else scheme), urlsplit(location).netloc


class Places:
    """The repository of a job and its replicas, as far as they answer, the nearest to a target first.

    Args:
        target: The location that the savepoint is restored into.
        open_place: Opens a repository or replica, such as `Job.open_place`.

    Attributes:
        there: Those that answer; one that fails later is left out from then on.
        passed: What was wrong with the others, and with savepoints.

    Raises:
        StorageError: None answers (code `no-place-answers`).
    """

    def __init__(
        self, locations: Sequence[str], job: str, target: str, open_place: Callable[[str], Repository]
    ) -> None:
        self.locations = locations
        self.there: list[ReachedRepository] = []
        self.passed: list[PassedOver] = []
        for location in by_distance(locations, target):
            try:
                self.there.append(ReachedRepository(location, open_place(location)))
            except PASSED_OVER as error:
                self.pass_over(location, error.message)
        self._check_there(job)

    def pass_over(self, location: str, why: str) -> None:
        self.passed.append(PassedOver(location, why))

    def said(self) -> str:
        """What was passed over, for people."""
        return " ".join(f"{one.location}: {one.why}" for one in dict.fromkeys(self.passed))

    def heads(self, job: str) -> Iterator[Manifest]:
        """The savepoints of a query in all places: one that has none of its own does not decide alone."""
        return _heads_in(tuple(self.there), job)

    def meant_by(self, reference: str, job: str, lines: QueryLines) -> Found:
        """The savepoint that a reference means, whichever place knows it; of `latest-good` the newest.

        Args:
            job: `job` or `job/query`.

        Raises:
            NotFoundError: No place has such a savepoint.
            StorageError: No place answers.
        """
        found = next(self.meant(reference, job, lines), None)
        if found is None:
            raise none_of(self.there[0].repository.store, job)
        return found

    def meant(self, reference: str, job: str, lines: QueryLines) -> Iterator[Found]:
        """The savepoint that `meant_by` gives; of `latest-good` all, the newest first."""
        asked = parse_reference(reference)
        declared = self._declared()
        lines = lines.knowing(self.heads(job))
        if asked.kind == "latest-good":
            yield from self._newest_of_all(asked.within(job) or job, lines)
            return
        found: list[tuple[datetime, Found]] = []
        missing: list[NotFoundError] = []
        left_out: list[_LeftOut] = []
        for place in declared:
            try:
                others: list[tuple[Manifest, str]] = []
                leave_out = leaving_out(lines, others)
                one = place.repository.resolve(reference, job, leave_out=leave_out)
                left_out += [_left_out(place, it, why) for it, why in others]
                head = glimpse(place.repository.store, one.job, one.savepoint)
            except NotFoundError as error:
                missing.append(error)
                continue
            except (IntegrityError, FormatError, StorageError) as error:
                self.pass_over(place.location, error.message)
                self.there.remove(place)
                continue
            if head is not None and asked.kind not in ("id", "name") and _is_rejected(declared, head):
                missing.append(only_rejected(one.job, [one.savepoint]))
                continue
            found.append((head.taken_at if head is not None else _OLDEST, one))
        if not found:
            if missing:
                raise missing[0]
            raise self._none_answers(job)
        if asked.kind not in BY_AGE:
            self._say_newer(left_out, _OLDEST)
            yield found[0][1]  # the repository decides, then the first replica that knows it
            return
        taken_at, newest = max(found, key=lambda each: each[0])
        self._say_newer(left_out, taken_at)
        hidden, head = Unreadable(), self._glimpse(newest)
        if head is not None:
            as_of = newest.as_of.at if newest.as_of else None
            hidden = unreadable([place.repository.store for place in self.there], head, as_of)
        for later in hidden.later:
            self.pass_over(self.there[0].location, f"Savepoint {later}: {UNREADABLE}")
        # Which one is meant cannot be said, and an older one is never taken by itself.
        yield Found(newest.job, hidden.meant[0], newest.as_of) if hidden.meant else newest

    def name_older(
        self,
        error: NotFoundError,
        damaged: Found,
        said: str,
        lines: QueryLines,
        pace: Pace,
        *,
        beside: Sequence[str] | None = None,
    ) -> NotFoundError:
        """The same error, with the newest older savepoint that any place has undamaged.

        Args:
            error: That no place has the one that is meant.
            beside: The other queries, each as `job/query`, where the reference is of all queries of a job.
        """

        def verifies(savepoint: str) -> bool:
            for place in self.there:
                with suppress(*PASSED_OVER):
                    report = verify(place.repository, damaged.job, savepoint, "full", pace=pace, record=False)
                    if report.restorable:
                        return True
            return False

        others = None
        if beside is not None:
            others = [
                [one.taken_at for one in self._known(job, ANY_LINE, [], []) if one.taken_at] for job in beside
            ]
        known = self._known(damaged.job, lines.knowing(self.heads(damaged.job)), [], [])
        as_of = damaged.as_of.at if damaged.as_of else None
        return with_older(error, said, self._glimpse(damaged), known, verifies, as_of=as_of, beside=others)

    def _declared(self) -> list[ReachedRepository]:
        return sorted(self.there, key=lambda place: self.locations.index(place.location))

    def _glimpse(self, found: Found) -> Manifest | None:
        """A savepoint without its files, by the first place that can read it; None where none can."""
        heads = (glimpse(place.repository.store, found.job, found.savepoint) for place in self.there)
        return next((one for one in heads if one is not None), None)

    def _newest_of_all(self, job: str, lines: QueryLines) -> Iterator[Found]:
        left_out: list[_LeftOut] = []
        first = self._declared()[0].repository.store
        failed: list[ReachedRepository] = []
        known = self._known(job, lines, self.passed, left_out, failed)
        self.there = [place for place in self.there if place not in failed]
        self._check_there(job)
        if not known and not self.passed and not left_out:
            raise none_of(first, job)
        by_age = sorted(known, key=lambda one: one.taken_at or _OLDEST)
        for one in newest_first(by_age):
            self._say_newer(left_out, one.taken_at or _OLDEST)
            yield Found(job, one.savepoint)
        self._say_newer(left_out, _OLDEST)

    def _known(
        self,
        job: str,
        lines: QueryLines,
        passed: list[PassedOver],
        left_out: list[_LeftOut],
        failed: list[ReachedRepository] | None = None,
    ) -> list[SavepointSummary]:
        """The candidates that any place has, each once.

        The mark of a rehearsal that was made last in any place decides whether a savepoint is rejected.

        Args:
            passed: Gets what cannot be read.
            left_out: Gets those of other lines.
            failed: Gets the places that cannot be listed.
        """
        known: dict[str, SavepointSummary] = {}
        for place in self._declared():
            try:
                for one in list(place.repository.manifests(job)):
                    if one.job != job:
                        continue
                    if one.error is not None:
                        passed.append(PassedOver(place.location, one.error.message))
                    elif why := lines.why_not(one):
                        left_out.append(_left_out(place, one, why))
                    else:
                        there = known.setdefault(one.savepoint, one)
                        restored = there.restored or one.restored
                        last = max(there, one, key=lambda each: (each.rehearsed_at or _OLDEST, each.rejected))
                        known[one.savepoint] = replace(
                            there,
                            restored=restored,
                            rejected=last.rejected and not restored,
                            rehearsed_at=last.rehearsed_at,
                        )
            except StorageError as error:
                passed.append(PassedOver(place.location, error.message))
                if failed is not None:
                    failed.append(place)
        return [one for one in known.values() if not one.rejected]

    def _say_newer(self, left_out: Sequence[_LeftOut], than: datetime) -> None:
        """Pass over those that are not older than what is meant: only those could have been meant."""
        self.passed += [said for at, said in left_out if at >= than and said not in self.passed]

    def _check_there(self, job: str) -> None:
        if not self.there:
            raise self._none_answers(job)

    def _none_answers(self, job: str) -> StorageError:
        return StorageError(
            f"Neither the repository of {job} nor a replica of it can be read: {self.said()}",
            code="no-place-answers",
            hint="Bring one of them back. A copy that is elsewhere: `streambank restore --from LOCATION`.",
        )


def choose_nearest(
    locations: Sequence[str],
    reference: str,
    job: str,
    *,
    target: str,
    record: bool,
    open_place: Callable[[str], Repository],
    by: Mapping[str, Any] | None = None,
    pace: Pace = DEFAULT_PACE,
    lines: QueryLines = ANY_LINE,
) -> tuple[Repository, Chosen]:
    """Find the savepoint, and the nearest place that has every byte of it.

    Each byte of the savepoint is read and compared in the place that it is restored from.

    Args:
        job: `job` or `job/query`.

    Raises:
        InputError: It is no reference, or ambiguous.
        NotFoundError: No place has such a savepoint (code `no-such-savepoint`), or none has one that verifies
            (`no-good-savepoint`).
        StorageError: No place answers (code `no-place-answers`).
    """
    places = Places(locations, job, target, open_place)
    damaged = None
    skipped: list[Skipped] = []
    asked = parse_reference(reference)
    for found in places.meant(reference, job, lines):
        whys = []
        for place in places.there:
            try:
                chosen = whole_at(place, found, record=record, by=by, pace=pace)
            except PASSED_OVER as error:
                places.pass_over(place.location, error.message)
                whys.append(error.message)
                continue
            passed = tuple(places.passed)
            return place.repository, replace(chosen, skipped=tuple(skipped), passed_over=passed)
        skipped.append(Skipped(found.savepoint, whys[0]))
        damaged = found
    nowhere = NotFoundError(
        f"No savepoint of {job} that {reference} means is whole anywhere: {places.said()}",
        code="no-good-savepoint",
        hint="`streambank verify --all -r LOCATION` shows what is wrong with each.",
    )
    if damaged is None or asked.kind not in BY_AGE:
        raise nowhere
    raise places.name_older(nowhere, damaged, asked.said, lines, pace)


def whole_at(
    place: ReachedRepository, found: Found, *, record: bool, by: Mapping[str, Any] | None, pace: Pace
) -> Chosen:
    """A savepoint of a place, each byte of it read and compared.

    Raises:
        NotFoundError, IntegrityError, FormatError, StorageError: It is not there, or not whole.
    """
    repository = place.repository
    report = verify(repository, found.job, found.savepoint, "full", pace=pace, record=record, by=by)
    require_whole(report)
    repository.signatures.require_key(found.job, found.savepoint)
    manifest = repository.load(found.job, found.savepoint)
    return Chosen(manifest, (), unrecorded(report), found.as_of)


def _heads_in(places: Sequence[ReachedRepository], job: str) -> Iterator[Manifest]:
    for place in places:
        with suppress(*PASSED_OVER):
            yield from candidate_heads(place.repository.store, job)


def _is_rejected(places: Sequence[ReachedRepository], head: Manifest) -> bool:
    """Whether the mark of a rehearsal that was made last in any place rejects a savepoint; as in `_known`."""
    if head.derived_from is None:
        return False
    marks = []
    for place in places:
        with suppress(*PASSED_OVER):
            if place.repository.newest_mark(head.job, head.savepoint, RESTORED) is not None:
                return False
            mark = place.repository.newest_mark(head.job, head.savepoint, REHEARSAL)
            if mark is not None:
                marks.append((mark.at, mark.fields.get("passed") is not True))
    return max(marks)[1] if marks else False


_LeftOut = tuple[datetime, PassedOver]
"""A savepoint of another line: when it was taken, and what is said of it."""


def _left_out(place: ReachedRepository, one: Manifest | SavepointSummary, why: str) -> _LeftOut:
    return one.taken_at or _OLDEST, PassedOver(place.location, f"Savepoint {one.savepoint}: {why}")
