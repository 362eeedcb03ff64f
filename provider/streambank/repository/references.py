"""How people refer to a savepoint: one grammar, wherever one is named.

| written | means |
|---|---|
| `b000041-5d0a41c2e7b9`, `b000041` | an id, or the unique beginning of one |
| `latest` | the newest: of one checkpoint by its batch, of two in the one with the last savepoint |
| `latest-good` | the newest that no verification has found damaged; a restore verifies it |
| `before-upgrade` | the one that was given this name (`names.py`) |
| `batch:41` | the one of this batch |
| `03:00`, `2026-11-26`, `2026-11-26T03:00+01:00` | the one taken last before, or at, that moment |

A savepoint whose rehearsal has not passed is meant by its whole id or its name alone. Each may stand behind
`job/` or `job/query/`. Ids begin with `b` and digits, names with a letter and not like an id, times with a
digit, so nothing means two things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, TypeAlias

from streambank.core.errors import InputError, NotFoundError
from streambank.core.names import check_name
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.core.zones import UTC_NAME
from streambank.repository.catalog import (
    LATEST,
    LATEST_GOOD,
    batch_of_id,
    candidate_heads,
    glimpse,
    heads,
    is_rejected,
    listed,
    manifest_key,
    newest_first,
    newest_heads,
    none_of,
    only_rejected,
    some,
    summarize,
)
from streambank.repository.manifest import Manifest
from streambank.repository.names import is_like_an_id, read_given, records_of_name
from streambank.storage.store import Store

Kind: TypeAlias = Literal["latest", "latest-good", "batch", "time", "id", "name"]
ZoneOf: TypeAlias = Callable[[str], "tuple[str, tzinfo]"]
"""Gives a job's time zone, its name and itself, by `job` or `job/query`."""
LeaveOut: TypeAlias = Callable[[Manifest], bool]
"""Whether a savepoint is none that a reference without its id or name may mean."""
_BATCH = re.compile(r"batch:(?P<batch>[0-9]{1,18})", re.ASCII)
_TIME = re.compile(
    r"(?:(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<time>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
    r"|(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?))"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:?[0-9]{2})?",
    re.ASCII,
)
_READ = 100
"""Of so many savepoints that a batch, or the beginning of an id, could mean the manifests are read."""
_HINT = "Write 03:00, 2026-11-26, or 2026-11-26T03:00, with Z or +01:00 behind it for another time zone."


def utc_of(job: str) -> tuple[str, tzinfo]:
    """The zone of jobs that declare none: UTC."""
    return UTC_NAME, UTC


@dataclass(frozen=True, slots=True)
class AsOf:
    """The moment that a reference by time means.

    Attributes:
        at: The moment, in the zone by which it was read.
        zone: The name of that zone: the job's, or what the reference itself says, such as `+01:00`.
    """

    at: datetime
    zone: str

    def __str__(self) -> str:
        return f"{self.at.isoformat(sep=' ')} ({self.zone})"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as it was written.

    Attributes:
        place: `job` or `job/query`, where it begins with that.
    """

    text: str
    place: str | None
    kind: Kind
    said: str

    def within(self, job: str | None) -> str | None:
        """Where it is looked for: its own place, or the job that was named besides.

        Raises:
            InputError: Its place is not of that job (code `another-job`).
        """
        if self.place and job and self.place != job and not self.place.startswith(f"{job}/"):
            raise InputError(
                f"{self.text} names a savepoint of {self.place}, and the job is {job}.",
                code="another-job",
                hint=f"Write {self.said}, or name the other job.",
            )
        return self.place or job


@dataclass(frozen=True, slots=True)
class Found:
    """The savepoint that a reference means.

    Attributes:
        as_of: The moment, for a reference by time.
    """

    job: str
    savepoint: str
    as_of: AsOf | None = None


def parse_reference(text: str) -> Reference:
    """Read a reference.

    Raises:
        InputError: It is none (codes `bad-name`, `bad-time`).
    """
    place, _, said = text.rpartition("/")
    kind: Kind
    if said in (LATEST, LATEST_GOOD):
        kind = "latest" if said == LATEST else "latest-good"
    elif said.startswith("batch:"):
        if _BATCH.fullmatch(said) is None:
            raise InputError(f"{said!r} is not a batch.", code="bad-name", hint="Write it like batch:41.")
        kind = "batch"
    elif ":" in said or _TIME.fullmatch(said):
        if _TIME.fullmatch(said) is None:
            raise InputError(f"{said!r} is not a time.", code="bad-time", hint=_HINT)
        kind = "time"
    else:
        check_name(said, "savepoint")
        kind = "id" if is_like_an_id(said) else "name"
    return Reference(text, place or None, kind, said)


def moment_of(said: str, zone_name: str, zone: tzinfo, now: datetime) -> AsOf:
    """The moment that a reference by time means.

    A date alone is its beginning, a time of day alone the last such time before now.

    Args:
        said: The time, as `parse_reference` lets it pass.

    Raises:
        InputError: The calendar has no such time (code `bad-time`).
    """
    match = _TIME.fullmatch(said)
    assert match is not None, "parse_reference has seen to it"
    try:
        if match["zone"]:
            zone_name, zone = _own_zone(match["zone"])
        clock = match["clock"] or match["time"] or "00:00"
        hour, minute, *rest = clock.split(":")
        seconds = float(rest[0]) if rest else 0.0
        if seconds >= 60:
            raise ValueError("a minute has 60 seconds")
        today = now.astimezone(zone)
        date = match["date"] or today.date().isoformat()
        day = datetime.fromisoformat(date)
        at = day.replace(hour=int(hour), minute=int(minute), tzinfo=zone) + timedelta(seconds=seconds)
        if match["clock"] and at > now:
            at = (day - timedelta(days=1)).replace(hour=int(hour), minute=int(minute), tzinfo=zone)
            at += timedelta(seconds=seconds)
        at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{said!r} is not a time.", code="bad-time", hint=_HINT) from error
    return AsOf(at, zone_name)


def _own_zone(text: str) -> tuple[str, tzinfo]:
    if text in "Zz":
        return UTC_NAME, UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return f"{text[0]}{digits[:2]}:{digits[2:]}", timezone(-offset if text[0] == "-" else offset)


def resolve(
    store: Store,
    reference: str,
    job: str | None = None,
    *,
    zone_of: ZoneOf = utc_of,
    now: datetime | None = None,
    leave_out: LeaveOut | None = None,
) -> Found:
    """The savepoint that a person means.

    Args:
        zone_of: Gives the zone of times that say none.
        now: The time now, if it is not that of this machine's clock.
        leave_out: Of `latest`, a batch and a time.

    Raises:
        NotFoundError: There is none (code `no-such-savepoint`), or none is good (`no-good-savepoint`).
        InputError: Several may be meant (code `ambiguous`), there are several jobs to choose from
            (`which-job`), or it is no reference at all (`bad-name`, `bad-time`).
        IntegrityError, FormatError: The record of the name cannot be read.
    """
    asked = parse_reference(reference)
    where = asked.place or job
    if asked.kind in ("latest", "latest-good", "time"):
        where = asked.within(job)
    if asked.kind in ("latest", "latest-good"):
        of_job = only_job(store, where, asked.said)
        return Found(of_job, _by_age(store, of_job, asked.said, leave_out))
    if asked.kind == "time":
        of_job = only_job(store, where, asked.said)
        as_of = moment_of(asked.said, *zone_of(of_job), now or utc_now())
        return Found(of_job, _by_time(store, of_job, as_of, leave_out), as_of)
    chosen = _candidates(store, asked, job)
    if asked.kind == "batch" and leave_out is not None and chosen:
        read = {which: glimpse(store, *which) for which in chosen[:_READ]}
        own = [which for which in chosen if (head := read.get(which)) is None or not leave_out(head)]
        if not own:
            raise only_others(chosen)
        chosen = own
    if not chosen:
        raise NotFoundError(
            f"There is no savepoint {reference}{f' of {job}' if job else ''} in {store.uri}.",
            code="no-such-savepoint",
            hint=_newest(store, where),
        )
    if len(chosen) > 1:
        names = some([f"{of_job}/{savepoint}" for of_job, savepoint in chosen])
        raise InputError(
            f"{reference} could be any of {len(chosen)} savepoints: {names}.",
            code="ambiguous",
            hint="Give more of the id, or the job.",
        )
    return Found(*chosen[0])


def find(
    store: Store, reference: str, job: str | None = None, *, zone_of: ZoneOf = utc_of
) -> tuple[str, str]:
    """Job and id of the savepoint that a person means; see `resolve`."""
    found = resolve(store, reference, job, zone_of=zone_of)
    return found.job, found.savepoint


def _candidates(store: Store, asked: Reference, job: str | None) -> list[tuple[str, str]]:
    there = [
        which
        for which in listed(store, asked.place or job)
        if not asked.place or job is None or which[0] == job
    ]
    if asked.kind == "batch":
        batch = int(asked.said.removeprefix("batch:"))
        return _meant(store, [which for which in there if batch_of_id(which[1]) == batch])
    exact = [which for which in there if which[1] == asked.said]
    if not exact and asked.kind == "name":
        jobs = dict.fromkeys(of_job for of_job, _ in there)
        named = [(of_job, holder_of(store, of_job, asked.said)) for of_job in jobs]
        exact = [(of_job, savepoint) for of_job, savepoint in named if savepoint is not None]
    return exact or _meant(store, [which for which in there if which[1].startswith(asked.said)])


def _meant(store: Store, several: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Which of several savepoints a batch, or the beginning of an id, means: none that is rejected.

    Raises:
        NotFoundError: Only rejected ones could be meant (code `no-such-savepoint`).
    """
    if len(several) > _READ:
        return several  # so many are ambiguous, whatever some of them are
    rejected = [which for which in several if (it := glimpse(store, *which)) and is_rejected(store, it)]
    if rejected and len(rejected) == len(several):
        raise only_rejected(rejected[0][0], [savepoint for _, savepoint in rejected])
    return [which for which in several if which not in rejected]


def holder_of(store: Store, job: str, name: str) -> str | None:
    """The listed savepoint of a job that has a name; None where none has.

    Where no record of the name is left, the manifest that says it counts: a copy of a repository by an older
    version has no records of names.

    Raises:
        IntegrityError, FormatError: The record cannot be read.
        InputError: Several manifests say the name (code `ambiguous`).
    """
    records = records_of_name(store, job, name)
    if records:
        return _recorded(store, job, name)
    taken = [head.savepoint for head in heads(store, job) if head.job == job and head.name == name]
    if len(taken) > 1:
        raise InputError(
            f"{name} could be any of {len(taken)} savepoints: {some(taken)}.",
            code="ambiguous",
            hint="Give the id.",
        )
    return taken[0] if taken else None


def _recorded(store: Store, job: str, name: str) -> str | None:
    found = recorded_name(store, job, name)
    return None if found is None else found[0]


def recorded_name(store: Store, job: str, name: str) -> tuple[str, Mapping[str, Any]] | None:
    """The listed savepoint that has a name by records, and who gave it that; None where none has.

    Raises:
        IntegrityError, FormatError: The record cannot be read.
    """
    for record in records_of_name(store, job, name):
        try:
            found = read_given(store, record)
        except NotFoundError:
            continue
        if store.exists(manifest_key(job, found[0])):
            return found
    return None


def recorded_holder(store: Store, job: str, name: str) -> Callable[[], str | None]:
    """Looks which listed savepoint has a name by records; None where none has: what `give_name` asks."""
    return lambda: _recorded(store, job, name)


def check_name_free(store: Store, job: str, name: str, savepoint: str) -> None:
    """Make sure that no other listed savepoint of a job has a name.

    Raises:
        ConflictError, InputError: One has (code `name-taken`).
    """
    holder = holder_of(store, job, name)
    if holder is not None and holder != savepoint:
        raise name_taken(job, name, holder)


def name_taken(job: str, name: str, holder: str, more: str = "") -> InputError:
    """The error of a name that another savepoint has."""
    return InputError(
        f"The name {name} belongs to the savepoint {holder} of {job}.{more}",
        code="name-taken",
        hint="Choose another name. A name is free again when its savepoint has expired.",
    )


def _by_age(store: Store, job: str, reference: str, leave_out: LeaveOut | None = None) -> str:
    found = [summary for summary in summarize(store, job) if summary.job == job and not summary.rejected]
    if not found:
        raise none_of(store, job)
    if reference == LATEST:
        # By what the heads say: of one that is damaged further on it is still known that it is the newest.
        newest = newest_heads(store, _own(store, job, leave_out))
        return newest[0].savepoint if newest else found[-1].savepoint
    good = newest_first(
        [summary for summary in found if summary.error is None and summary.verified_ok is not False]
    )
    if not good:
        raise NotFoundError(
            f"Each of the {len(found)} savepoints of {job} is damaged.",
            code="no-good-savepoint",
            hint="Verify them all to see what is wrong with each. Look for a replica of the repository.",
        )
    return good[0].savepoint


def _own(store: Store, job: str, leave_out: LeaveOut | None, until: datetime | None = None) -> list[Manifest]:
    """The savepoints of a job (taken until then, or all where none was), without rejected ones and others.

    Raises:
        NotFoundError: Only others could be meant (code `no-such-savepoint`).
    """
    there = list(candidate_heads(store, job))
    if leave_out is None:
        return there
    meant = [head for head in there if until is None or head.taken_at <= until]
    own = [head for head in meant if not leave_out(head)]
    if meant and not own:
        raise only_others([(head.job, head.savepoint) for head in newest_heads(store, meant)])
    return own or there


def only_others(others: Sequence[tuple[str, str]]) -> NotFoundError:
    """The error of what could mean none but savepoints of other lines.

    Args:
        others: Their jobs and ids, the newest first.
    """
    job, newest = others[0]
    return NotFoundError(
        f"Of {job} only savepoints of another line of the query, or of another query, could be meant: "
        f"{some([savepoint for _, savepoint in others])}.",
        code="no-such-savepoint",
        hint="Only its id or its name means such a savepoint. If you want one of them, restore it by that, "
        f"such as {job}/{newest}: the plan says first what it is of.",
    )


def _by_time(store: Store, job: str, as_of: AsOf, leave_out: LeaveOut | None = None) -> str:
    own = _own(store, job, leave_out, as_of.at)
    taken = [(head.taken_at, head.batch, head.savepoint) for head in own]
    before = [savepoint for savepoint in taken if savepoint[0] <= as_of.at]
    if before:
        return max(before)[2]
    if not taken:
        raise none_of(store, job)
    first = min(taken)
    raise NotFoundError(
        f"There is no savepoint of {job} from {as_of} or before in {store.uri}.",
        code="no-such-savepoint",
        hint=f"The oldest is {first[2]}, taken at {first[0].astimezone(as_of.at.tzinfo).isoformat(sep=' ')}.",
    )


def only_job(store: Store, job: str | None, reference: str = LATEST_GOOD) -> str:
    """The job that `latest`, `latest-good` or a time is about.

    Args:
        job: `job` or `job/query`; None where there is only one.

    Raises:
        NotFoundError: There is no savepoint of it (code `no-such-savepoint`).
        InputError: There are several jobs (code `which-job`).
    """
    jobs = sorted({of_job for of_job, _ in listed(store, job)})
    if not jobs:
        raise none_of(store, job)
    if job in jobs:
        return job
    if len(jobs) > 1:
        raise InputError(
            f"{reference} needs one job, and there are savepoints of {', '.join(jobs)}.",
            code="which-job",
            hint="Name it with --job.",
        )
    return jobs[0]


def job_of_reference(store: Store, reference: str, job: str | None) -> str:
    """The job of the savepoint that a reference means, whether or not that savepoint is good.

    Raises:
        NotFoundError, InputError: As `resolve`.
    """
    asked = parse_reference(reference)
    if asked.kind in ("latest", "latest-good", "time"):
        return only_job(store, asked.place or job, asked.said)
    return resolve(store, reference, job).job


def _newest(store: Store, job: str | None) -> str:
    """Which savepoints there are, the newest first, with the job where several have some."""
    there = sorted(listed(store, job), key=lambda which: which[1], reverse=True)
    several = len({of_job for of_job, _ in there}) > 1
    names: Sequence[str] = [f"{of_job}/{savepoint}" if several else savepoint for of_job, savepoint in there]
    return f"The newest that are there: {some(names)}." if names else none_of(store, job).hint
