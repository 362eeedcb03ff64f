"""What a job declares about its savepoints, restores, upgrades, stops, starts and limits, a table each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time
from typing import Annotated

from streambank.control.claims import DEFAULT_BEAT_S, DEFAULT_TTL_S
from streambank.core.choices import (
    CLOSURE_KINDS,
    LOCK_MODES,
    SINK_CHOICES,
    SOURCE_CHOICES,
    VERIFICATIONS,
    ClosureKind,
)
from streambank.core.limits import (
    DATED_PROGRESS_FILES,
    DEFAULT_DRAIN_TIMEOUT_S,
    DEFAULT_FORCE_AFTER_S,
    DEFAULT_LOG_BYTES,
    DEFAULT_LOG_FILES,
    DEFAULT_PROGRESS_BYTES,
    DEFAULT_PROGRESS_FILES,
)
from streambank.core.zones import UTC_NAME
from streambank.declaration.fields import Fields
from streambank.declaration.notify import Notify, read_notify
from streambank.declaration.policy import Locations, Schedule, Share, TimeZone, one_of, read_policy
from streambank.repository.locks import MOST_S, LockPolicy
from streambank.retention.policy import MIN_VERIFIED, Policy

DEFAULT_SHARE = "10%"
DEFAULT_STAGGER_S = 900.0
_MIN_STAGGER_S, _MAX_STAGGER_S = 60.0, 3600.0


_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|(24):(00))")


@dataclass(frozen=True, slots=True)
class Blackout:
    """A window that comes every day, by a clock on the wall.

    Attributes:
        begin: Its first minute, in minutes since midnight.
        end: The minute after its last one, 1440 at most; before `begin` where it goes over midnight.
    """

    begin: int
    end: int

    def __str__(self) -> str:
        return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in (self.begin, self.end))

    def holds(self, at: time) -> bool:
        minute = at.hour * 60 + at.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


def parse_blackout(text: str) -> Blackout | None:
    """The window that a text such as `22:00-06:00` names; None where it names none."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        return None
    hours = [int(part) for part in found.groups() if part is not None]
    window = Blackout(hours[0] * 60 + hours[1], hours[2] * 60 + hours[3])
    return None if window.begin == window.end else window


def _blackout(fields: Fields, name: str) -> tuple[Blackout, ...]:
    windows = []
    for text in fields.texts(name) or ():
        window = parse_blackout(text)
        if window is None:
            raise fields.mistake(
                name, f"{text!r} is not a window of the day", 'Write windows such as "22:00-06:00".'
            )
        windows.append(window)
    return tuple(windows)


def _stagger_s(fields: Fields, name: str) -> float | None:
    if isinstance(fields.data.get(name), bool):
        return DEFAULT_STAGGER_S if fields.boolean(name) else 0.0
    seconds = fields.duration_s(name)
    if seconds is not None and not _MIN_STAGGER_S <= seconds <= _MAX_STAGGER_S:
        raise fields.mistake(
            name, f"{seconds:g} s is not between one minute and one hour", "false switches it off."
        )
    return seconds


def _notify(fields: Fields, name: str) -> tuple[Notify, ...]:
    return read_notify(fields, levels=False, name=name)


def _applications(fields: Fields, name: str) -> tuple[str, ...] | None:
    found = fields.texts(name)
    for one in found or ():
        if not one.strip() or ".." in one.split("/"):
            raise fields.mistake(name, f"{one!r} names no application", 'Such as "releases/*.py".')
    return found


def _approvers(fields: Fields, name: str) -> tuple[str, ...]:
    found = fields.texts(name) or ()
    for one in found:
        if not one.strip():
            raise fields.mistake(name, "one of them is empty", "Write the ids of users of Airflow.")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class SavepointPolicy:
    """`[jobs.NAME.savepoint]`.

    Attributes:
        verify: `quick`, `full`, `sampled`, or `none`: the verification after each.
        share: How much of the job's savepoints a sampled verification hashes, such as `10%`.
        blackout: Windows of the day in which scheduled runs are skipped.
        time_zone: By whose clocks these windows are: the job's, where the table declares none.
        stagger_s: Jobs with one schedule are spread over so many seconds; 0 for not at all.
    """

    schedule: Schedule | None = None
    closure: Annotated[ClosureKind, one_of(*CLOSURE_KINDS)] = "safe"
    verify: Annotated[str, one_of(*VERIFICATIONS)] = "quick"
    share: Share = DEFAULT_SHARE
    blackout: Annotated[tuple[Blackout, ...], _blackout] = ()
    time_zone: TimeZone = UTC_NAME
    stagger_s: Annotated[float, _stagger_s] = DEFAULT_STAGGER_S
    sweep: bool = False
    lock: LockPolicy | None = None


@dataclass(frozen=True, slots=True)
class ReplicatePolicy:
    """`[jobs.NAME.replicate]`.

    Attributes:
        to: URIs of the repositories to which each savepoint is brought; none where that is not declared.
        retention: What replicas keep besides what the repository lists; None for everything.
        lock: For how long what arrives there is locked; None for not at all.
    """

    to: tuple[str, ...] = ()
    retention: Policy | None = None
    lock: LockPolicy | None = None


@dataclass(frozen=True, slots=True)
class RestorePolicy:
    """`[jobs.NAME.restore]`: defaults of a restore.

    Attributes:
        sink: What to do where a sink is ahead of the savepoint: `refuse`, `rollback`, `rollback-accept` or
            `accept`.
        source: What to do where Kafka or a directory has not all of the input any more: `refuse` or `accept`.
        approval_timeout_s: How long a restore or an exchange of state waits for a person; silence rejects.
        deadline_s: How long `<job>.restore` may take, from the moment at which it is queued, before somebody
            is told; None for as long as it takes.
        ask: Who is alerted that one of them waits for an approval.
        approvers: Ids of the users who may approve it; none for everybody whom Airflow lets.
        new_outputs: Below which locations the form of `<job>.restore` may put new outputs; None for beside
            the old one.
        into: Below which locations it may restore into a directory; None for beside the checkpoint.
    """

    sink: Annotated[str, one_of(*SINK_CHOICES)] = "refuse"
    source: Annotated[str, one_of(*SOURCE_CHOICES)] = "refuse"
    approval_timeout_s: float = 3600.0
    deadline_s: float | None = None
    notify: Annotated[tuple[Notify, ...], _notify] = ()
    ask: Annotated[tuple[Notify, ...], _notify] = ()
    approvers: Annotated[tuple[str, ...], _approvers] = ()
    new_outputs: Locations | None = None
    into: Locations | None = None


@dataclass(frozen=True, slots=True)
class UpgradePolicy:
    """`[jobs.NAME.upgrade]`.

    Attributes:
        applications: Which applications the form of `<job>.upgrade` may name, as paths from the folder of the
            declared one, or absolute; `*` stands for a part of a name. None for programs of that folder.
    """

    applications: Annotated[tuple[str, ...], _applications] | None = None


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """`[jobs.NAME.stop]`.

    Attributes:
        force_after_s: When a stop that reaches no batch boundary is forced.
        drain_timeout_s: How long a drain may wait for the input to end.
    """

    force_after_s: float = DEFAULT_FORCE_AFTER_S
    drain_timeout_s: float = DEFAULT_DRAIN_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """`[jobs.NAME.start]`.

    Attributes:
        timeout_s: How long a start waits for the first batch, or the first trigger without data.
        schedule: When `<job>.run` looks after the job: a cron expression or preset; None for by hand only.
    """

    timeout_s: float = 300.0
    schedule: Schedule | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """`[jobs.NAME.lease]`, `.logs` and `.progress`.

    Attributes:
        ttl_s: How long a holder elsewhere must show no beat before it may be replaced.
        log_max_bytes: Size of the driver's log before it is rotated.
        progress_age_s: How long a progress file is kept after its last record; None for as long as there is
            room.
    """

    beat_s: float = DEFAULT_BEAT_S
    ttl_s: float = DEFAULT_TTL_S
    log_max_bytes: int = DEFAULT_LOG_BYTES
    log_files: int = DEFAULT_LOG_FILES
    progress_max_bytes: int = DEFAULT_PROGRESS_BYTES
    progress_files: int = DEFAULT_PROGRESS_FILES
    progress_age_s: float | None = None


def read_savepoint(fields: Fields, time_zone: str) -> SavepointPolicy:
    """Of `[jobs.NAME.savepoint]`, in the time zone of its job."""
    zone = fields.time_zone() or time_zone
    return read_policy(fields, SavepointPolicy, time_zone=zone, lock=_lock(fields))


def _lock(fields: Fields) -> LockPolicy | None:
    """`lock` and `lock_mode`: the second means nothing without the first."""
    for_s, mode = fields.duration_s("lock"), fields.choice("lock_mode", LOCK_MODES)
    if for_s is None:
        if mode is not None:
            raise fields.mistake("lock_mode", "nothing is locked", 'Say for how long: lock = "30d".')
        return None
    if for_s > MOST_S:
        raise fields.mistake("lock", "it is more than a hundred years", 'Write for how long as "30d".')
    return LockPolicy(for_s, mode or "governance")


def read_replicate(fields: Fields, repository: str, time_zone: str) -> ReplicatePolicy:
    """Of `[jobs.NAME.replicate]`; a replica is to be another place than the repository."""
    if not fields.data:
        return ReplicatePolicy()
    replicas: list[str] = []
    for text in fields.required("to", fields.texts("to")):
        location = fields.as_location("to", text)
        if _overlap(location, repository):
            raise fields.mistake("to", f"{text!r} is the repository, or one contains the other")
        if any(_overlap(location, other) for other in replicas):
            raise fields.mistake("to", f"{text!r} is listed twice, or one replica contains another")
        replicas.append(location)
    if not replicas:
        raise fields.mistake("to", "it names no replica", 'Name one, such as "s3://backups/streambank".')
    retention, lock = read_retention(fields.table("retention"), time_zone), _lock(fields)
    fields.done()
    return ReplicatePolicy(tuple(replicas), retention, lock)


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def read_restore(fields: Fields) -> RestorePolicy:
    """Of `[jobs.NAME.restore]`."""
    policy = read_policy(fields, RestorePolicy)
    if policy.notify and policy.deadline_s is None:
        raise fields.mistake("notify", "it needs a deadline, and none is declared", "Add deadline.")
    return policy


def read_limits(fields: Fields) -> Limits:
    """Of `[jobs.NAME.lease]`, `.logs` and `.progress`; takes the job's whole table."""
    lease, logs, progress = fields.table("lease"), fields.table("logs"), fields.table("progress")
    days = progress.whole("days", minimum=1)
    limits = Limits(
        lease.duration_s("beat") or DEFAULT_BEAT_S,
        lease.duration_s("ttl") or DEFAULT_TTL_S,
        logs.whole("max_bytes", minimum=10_000) or DEFAULT_LOG_BYTES,
        logs.whole("files", minimum=1) or DEFAULT_LOG_FILES,
        progress.whole("max_bytes", minimum=10_000) or DEFAULT_PROGRESS_BYTES,
        progress.whole("files", minimum=2)
        or (DEFAULT_PROGRESS_FILES if days is None else DATED_PROGRESS_FILES),
        None if days is None else days * 86_400.0,
    )
    if limits.ttl_s < 5 * limits.beat_s:
        raise lease.mistake("ttl", f"{limits.ttl_s:g} s is less than 5 beats of {limits.beat_s:g} s")
    for one in (lease, logs, progress):
        one.done()
    return limits


def read_retention(fields: Fields, time_zone: str) -> Policy | None:
    """The policy in a table, in the time zone of its job; None where there is none.

    Raises:
        InputError: A field is not known or cannot be right, or no field keeps anything (code
            `bad-declaration`).
    """
    if not fields.data:
        return None
    min_verified = fields.whole("min_verified", minimum=0)
    kept = MIN_VERIFIED if min_verified is None else min_verified
    policy = read_policy(fields, Policy, time_zone=time_zone, min_verified=kept)
    if policy.is_empty:
        raise fields.source.mistake(
            fields.path, "it keeps nothing", "Add a rule, such as keep_last = 10 or keep_daily = 7."
        )
    return policy
