"""What a driver is started with, in full: the launch spec, `launches/<id>.json` of a job's control records.

The launcher writes it, the runner reads it. Its checkpoints say what was current when it was written; the
runner asks the job's generation records again once it holds the lease, since a restore may have come between.

A launch may be *held*: its driver runs its application up to the first query and waits there, without the
lease, until `released/<id>.json` says how things stand by then. That is a launch spec, too, and says nothing
else of what runs: the driver's arguments prove the first one only.

Its `args` and `code` may hold secrets, so the folder is closed to others.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streambank.control.claims import DEFAULT_BEAT_S, DEFAULT_TTL_S
from streambank.control.control import JobControl
from streambank.control.records import JsonDict, decode_json, encode_json
from streambank.control.rollbacks import check_not_rolled_back
from streambank.core.errors import ConflictError, FormatError, IntegrityError, NotFoundError
from streambank.core.limits import (
    DEFAULT_DRAIN_TIMEOUT_S,
    DEFAULT_FORCE_AFTER_S,
    DEFAULT_LOG_BYTES,
    DEFAULT_LOG_FILES,
    DEFAULT_PROGRESS_BYTES,
    DEFAULT_PROGRESS_FILES,
)
from streambank.core.shape import decode, encode
from streambank.core.units import to_json_time, utc_now
from streambank.sinks.redirect import Redirect
from streambank.storage.local.modes import close_directory
from streambank.storage.store import read_record

FORMAT = 1


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One query of a launch.

    Attributes:
        checkpoint: The URI of its current generation.
        committed: Newest batch that was committed when the spec was written; None before the first.
        new_sinks: Output directories in which it must not go on, each with the one that it was restored for.
        declared: The URI of its declared checkpoint, beside which its marker lies (marker.py); None where an
            older version launched it.
        spark_name: What the application calls it, as in `queryName(...)`; None where that is its name here.
        redirect: Where it writes instead of where the application says; None for a live query.
        replay: Batches of the live query that a copy executes again (`Replay`), after which it ends; None for
            none.
    """

    checkpoint: str
    generation: int
    committed: int | None = None
    new_sinks: Mapping[str, str] = field(default_factory=dict)
    declared: str | None = None
    spark_name: str | None = None
    redirect: Redirect | None = None
    replay: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything a driver needs to know.

    Attributes:
        launch_id: This launch; the lease and the events of the driver carry it.
        control: URI of the control location; the job's records are below `<control>/<job>`.
        queries: By name, or `main` where the job has only one query.
        force_after_s: A stop that has not reached a batch boundary after this long becomes `query.stop()`,
            and after as long again SIGKILL.
        drain_timeout_s: How long a drain may wait for a trigger without new data.
        log: Path of the driver's log on its host; None where nobody collects it.
        log_max_bytes: The log is rotated when it gets larger (by the runner: `RotatedLog`).
        progress_age_s: How long a progress file is kept after its last record; None for as long as there is
            room.
        on: Where its executors run: `local`, `standalone`, `yarn` or `kubernetes`; or the name of a launcher
            that another package registers. A name alone: nothing is loaded because a record names it.
        deploy_mode: Where the driver itself runs: `client` for the machine that launched it, or `cluster`.
        supervised: Whether the cluster starts it again by itself where it fails.
        desired: The number of the record in `desired/` by which the job was meant to run then; None where
            nobody looked, or an older version launched it. A later `stopped` is against this launch.
        asked: The number of the newest request then; None likewise. A later stop is against this launch
            (location.py).
        repository: URI of the job's repository of savepoints, for its marker; None where an older version
            launched it.
        repository_id: The id of that repository then; None where there was none.
        spark_version: The Spark that its driver gets, such as `3.5.9`; None where only a cluster knows.
        code: What is run, as `Code` has it (code/code.py); None where an older version launched it.
        site: At which of its job's sites it runs; None for a job that has only one.
        other_control: URI of the control location of the other site.
        held_by: The upgrade that holds it, by the number of its claim; None for a driver that starts at once.
        seal: The digest of the secret that its release has to name; None likewise.
        hot_keys: How hot keys by traffic are sampled (`HotKeysPolicy`); None for not at all.
    """

    job: str
    launch_id: str
    application: str
    args: tuple[str, ...]
    control: str
    queries: Mapping[str, QuerySpec]
    launched_at: str
    by: Mapping[str, str] = field(default_factory=dict)
    force_after_s: float = DEFAULT_FORCE_AFTER_S
    drain_timeout_s: float = DEFAULT_DRAIN_TIMEOUT_S
    beat_s: float = DEFAULT_BEAT_S
    ttl_s: float = DEFAULT_TTL_S
    log: str | None = None
    log_max_bytes: int = DEFAULT_LOG_BYTES
    log_files: int = DEFAULT_LOG_FILES
    progress_max_bytes: int = DEFAULT_PROGRESS_BYTES
    progress_files: int = DEFAULT_PROGRESS_FILES
    progress_age_s: float | None = None
    on: str = "local"
    deploy_mode: str = "client"
    supervised: bool = False
    desired: int | None = None
    asked: int | None = None
    repository: str | None = None
    repository_id: str | None = None
    spark_version: str | None = None
    code: Mapping[str, Any] | None = None
    site: str | None = None
    other_control: str | None = None
    held_by: int | None = None
    seal: str | None = None
    hot_keys: Mapping[str, Any] | None = None

    def to_dict(self) -> JsonDict:
        return {"format": FORMAT, **encode(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], what: str = "launch spec") -> LaunchSpec:
        """From the file; fields of a later version are ignored.

        Raises:
            FormatError: The format is unknown (code `unknown-format`) or something is missing
                (`damaged-record`).
        """
        if data.get("format") != FORMAT:
            raise FormatError(
                f"The {what} has format {data.get('format')!r}; this version knows {FORMAT}.",
                hint="Use the same version of Streambank to start and to run the job.",
            )
        return decode(cls, data, what, hint="It was cut off or edited; a new start writes another one.")

    @property
    def key(self) -> str:
        """Where it lies below the job's control records."""
        return launch_key(self.launch_id)

    def encoded(self) -> bytes:
        """What its file holds."""
        return encode_json(self.to_dict())

    @property
    def digest(self) -> str:
        """Of its file, as the driver's arguments carry it."""
        return sha256_of(self.encoded())

    def control_of_job(self) -> JobControl:
        """The job's records."""
        return JobControl.open(self.control, self.job)


LAUNCHED = "launched"
"""The stream of the digests of launch specs; nothing is in it where there are no keys."""
HOLDER = "upgrading"
"""The claim of the upgrade that holds a launch (upgrade/record.py)."""
WAITING = "driver-waiting"
"""The kind of event that says that a held driver waits at its first query."""
NOT_NEEDED = "driver-not-needed"
"""The kind of event that says why a held driver has ended without a query."""
GENTLY_S = 5.0
"""For so long a held driver that is not needed may take to end by TERM, and remove its temporary files."""
_RELEASED = "released"
"""The folder of the job's records with the launches that were held, and are held no more."""
_AS_IT_STANDS = ("launched_at", "by", "desired", "asked", "held_by", "seal")
"""What a release says for itself, with the batches that are committed by then."""


def is_same_launch(held: LaunchSpec, released: LaunchSpec) -> bool:
    """Whether a release lets a held driver run what it was launched for, and nothing else."""
    if set(held.queries) != set(released.queries):
        return False
    queries = {
        name: replace(query, committed=held.queries[name].committed)
        for name, query in released.queries.items()
    }
    said = {name: getattr(held, name) for name in _AS_IT_STANDS}
    return replace(released, queries=queries, **said).encoded() == held.encoded()


def seal_of(secret: str) -> str:
    """What a held launch carries of the secret that only who holds it knows."""
    return sha256_of(secret.encode())


def release_launch(control: JobControl, released: LaunchSpec, secret: str) -> None:
    """Let a held driver take the lease and start its queries.

    Raises:
        ConflictError: It was released otherwise (code `exists`).
    """
    close_directory(f"{control.store.uri}/{_RELEASED}", 0o770)
    key, data = released_key(released.launch_id), encode_json({**released.to_dict(), "secret": secret})
    try:
        control.store.write(key, data, exclusive=True)
    except ConflictError:
        if read_record(control.store, key) != data:  # the answer to the first try was lost
            raise


def released_launch(control: JobControl, held: LaunchSpec) -> LaunchSpec | None:
    """A held launch as it was released; None as long as it is held.

    Raises:
        FormatError: The release is damaged, or of an unknown format.
        IntegrityError: It says something else of what runs (code `changed-launch`).
    """
    what = f"release of {held.launch_id}"
    try:
        data = decode_json(read_record(control.store, released_key(held.launch_id)), what)
    except NotFoundError:
        return None
    released = LaunchSpec.from_dict(data, what)
    if seal_of(str(data.get("secret"))) != held.seal or not is_same_launch(held, released):
        raise _changed(f"The {what} says something else of what runs than its launch.")
    return released


def is_held(spec: LaunchSpec, control: JobControl) -> bool:
    """Whether a driver waits until its launch is released."""
    return spec.held_by is not None and not control.store.exists(released_key(spec.launch_id))


def is_waiting(control: JobControl, launch_id: str) -> bool:
    """Whether a driver waits until its launch is released; False where its launch cannot be understood."""
    try:
        spec = spec_of(control, launch_id)
    except (FormatError, IntegrityError):
        return False
    return spec is not None and is_held(spec, control)


def released_key(launch_id: str) -> str:
    """Where the release of a launch lies below the job's control records."""
    return f"{_RELEASED}/{launch_id}.json"


def new_launch_id() -> str:
    """A fresh id; long enough to find the driver by it in a list of processes."""
    return f"launch-{uuid.uuid4().hex}"


def launch_key(launch_id: str) -> str:
    """Where a launch spec lies below the job's control records."""
    return f"launches/{launch_id}.json"


def write_launch(control: JobControl, spec: LaunchSpec) -> None:
    """Keep a launch spec among the job's records, where others of the machine may not read its arguments.

    Where records are signed, its digest is, too: an upgrade may go back to what was launched.
    """
    close_directory(f"{control.store.uri}/launches", 0o770)
    control.store.write(spec.key, spec.encoded(), exclusive=True)
    if control.signer.keys:
        digests = {"launch_id": spec.launch_id, "digest": spec.digest, "at": to_json_time(utc_now())}
        control.signed(LAUNCHED).append(digests)


def proven_launch(control: JobControl, launch_id: str) -> LaunchSpec | None:
    """A launch spec as it was written; None where it is gone, or was changed although records are signed.

    Raises:
        IntegrityError: A record of what was launched is not signed (codes `not-signed`, `bad-signature`).
    """
    try:
        data = read_record(control.store, launch_key(launch_id))
        spec = decode_launch(data, launch_id)
    except (NotFoundError, FormatError):
        return None
    digest = {"launch_id": launch_id, "digest": sha256_of(data)}
    records = control.signed(LAUNCHED).newest_first(vouched=True) if control.signer.keys else ()
    if control.signer.keys and not any(digest.items() <= record.data.items() for record in records):
        return None
    return spec


def read_launch(control: JobControl, launch_id: str) -> LaunchSpec:
    """A launch spec of the job; of one that was held, as it was released.

    Raises:
        NotFoundError: There is none of that id.
        FormatError: It is damaged or of an unknown format.
        IntegrityError: Its release is not of this launch (code `changed-launch`).
    """
    spec = decode_launch(read_record(control.store, launch_key(launch_id)), launch_id)
    return spec if spec.held_by is None else released_launch(control, spec) or spec


def decode_launch(data: bytes, what: str = "launch spec", digest: str | None = None) -> LaunchSpec:
    """A launch spec from its file, and the digest that the driver's arguments have, if any.

    Raises:
        FormatError: It is damaged or of an unknown format.
        IntegrityError: It is not what the launcher wrote (code `changed-launch`).
    """
    if digest is not None and digest != sha256_of(data):
        raise _changed(f"The {what} was changed after the driver was launched with it.")
    return LaunchSpec.from_dict(decode_json(data, what), what)


def _changed(message: str) -> IntegrityError:
    return IntegrityError(
        message,
        code="changed-launch",
        hint="Find out who can write among the job's records, then start the job again.",
    )


def check_generations(spec: LaunchSpec, control: JobControl) -> None:
    """Make sure, with the lease in hand, that the spec still names each query's current generation.

    Raises:
        ConflictError: A restore came between the launch and the lease (code `stale-launch`).
        RefusedError: One did, and has taken the sinks back without a new generation (`sinks-taken-back`).
    """
    for name, query in spec.queries.items():
        current = control.generation(name)
        if current is None:
            continue
        check_not_rolled_back(control, name, current)
        if current.number != query.generation:
            raise ConflictError(
                f"Job {spec.job} moved on to generation {current.number} of query {name} after this driver "
                f"was launched for generation {query.generation}.",
                code="stale-launch",
                hint="Start the job again.",
            )


def sha256_of(data: bytes) -> str:
    """As records and arguments name a digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def spec_of(control: JobControl, launch_id: str) -> LaunchSpec | None:
    """A launch spec of the job; None where it is gone."""
    try:
        return read_launch(control, launch_id)
    except NotFoundError:
        return None
