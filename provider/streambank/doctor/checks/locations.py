"""Where things lie: on one disk, in memory, in a folder that Spark deletes, under rules that delete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from streambank.core.errors import StorageError
from streambank.core.finding import Finding
from streambank.core.units import say_bytes
from streambank.declaration.declaration import Declarations, Job
from streambank.declaration.objectives import PROMISES
from streambank.doctor.spark_conf import SparkConf
from streambank.doctor.subject import UNDECLARED, CheckResult, SkippedCheck
from streambank.driver.launchers.disks import TEMPORARY, Disk
from streambank.inputs.folders import DataFolders
from streambank.storage import is_inside, local_path, scheme_of
from streambank.storage.local.modes import openness
from streambank.storage.local.mounts import Mount
from streambank.storage.store import Served, Store

MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
REMOTE = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)


def machine_bytes(root: Path = Path("/")) -> int | None:
    """The memory of this machine, or of the container that this process is in where that has less."""
    try:
        text = (root / "proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^MemTotal:\s+([0-9]+) kB", text, re.MULTILINE)
    if found is None:
        return None
    total = int(found[1]) * 1024
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = (root / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if limit.isdecimal():
            total = min(total, int(limit))
    return total


MountOf = Callable[[Path], Mount | None]
_TEMPORARY = re.compile(r"temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MORE_SPACE = PROMISES["free_space"].advice
_AHEAD_H = 24
_ELSEWHERE = "Keep the repository on another disk or service, or replicate it there: docs/howto/replicas.md."


def check_location(location: str, mount_of: MountOf) -> Iterator[Finding]:
    """A checkpoint that goes away by itself."""
    if _TEMPORARY.fullmatch(location.rpartition("/")[2]):
        yield Finding(
            "no-checkpoint-location",
            "error",
            location,
            "This is the name that Spark gives to the checkpoint of a query which names no "
            "checkpointLocation.",
            "Spark deletes it when the query ends, and the next start begins with nothing.",
            "Name a checkpointLocation, or spark.sql.streaming.checkpointLocation.",
        )
    path = local_path(location) if scheme_of(location) == "file" else None
    mount = None if path is None else mount_of(path)
    if mount is not None and mount.kind in MEMORY:
        yield Finding(
            "checkpoint-in-memory",
            "warning",
            location,
            f"It is on {mount.point}, a file system of the type {mount.kind}, which is in memory.",
            "It is gone when the machine or its container restarts.",
            "Put the checkpoint on a disk or an object store.",
        )


def check_unnamed(temporary: Path) -> Iterator[Finding]:
    """Checkpoints of queries on this machine that name no checkpoint location."""
    for place in sorted(temporary.glob("temporary-*")):
        if (
            _TEMPORARY.fullmatch(place.name)
            and (place / "metadata").is_file()
            and (place / "offsets").is_dir()
        ):
            yield Finding(
                "no-checkpoint-location",
                "warning",
                str(place),
                "A query on this machine runs, or ran until it was killed, without a checkpointLocation: "
                "Spark keeps its checkpoint here.",
                "Spark deletes it when the query ends, and the next start begins with nothing.",
                "Name a checkpointLocation, or spark.sql.streaming.checkpointLocation; remove what a killed "
                "one has left.",
            )


def check_space(disks: Iterable[Disk], savepoint_bytes: int, grows_by: float = 0.0) -> Iterator[Finding]:
    """Disks that are full, or will be soon, by the state's growth in bytes an hour."""
    promise = PROMISES["free_space"]
    for disk in disks:
        left = disk.space.usable_bytes
        names = {place.what for place in disk.places}
        holds = disk.holds[:1].upper() + disk.holds[1:]
        refusal = disk.space.refusal(holds)
        # A disk that is small, such as one in memory for temporary files, is not full for that.
        breach, warn = (
            min(limit or 0.0, disk.space.total_bytes / 10) for limit in (promise.breach, promise.warn)
        )
        if refusal is not None or left < breach:
            yield Finding(
                "no-free-space",
                "error",
                disk.space.point,
                f"{holds}: the disk has {say_bytes(left)} of {say_bytes(disk.space.total_bytes)} left."
                if refusal is None
                else refusal.message,
                _effect(disk, refused=refusal is not None),
                _MORE_SPACE if refusal is None else refusal.hint,
            )
            continue
        needs = [(warn, "")]
        if "repository" in names:
            needs.append((savepoint_bytes, ", and a savepoint can take"))
        if "checkpoint" in names:
            needs.append((grows_by * _AHEAD_H, f", and {_AHEAD_H} h of the state's growth take"))
        needed, what = max(needs)
        if left < needed:
            said = f"{holds}: the disk has {say_bytes(left)} of {say_bytes(disk.space.total_bytes)} left"
            yield Finding(
                "little-free-space",
                "warning",
                disk.space.point,
                f"{said}{what and f'{what} {say_bytes(needed)}'}.",
                _effect(disk, refused=False),
                _MORE_SPACE,
            )


def _effect(disk: Disk, *, refused: bool) -> str:
    names = {place.what for place in disk.places}
    fail = ["batches"] * any(place.needed for place in disk.places)
    fail += ["savepoints"] * ("repository" in names) + ["whatever needs temporary files"] * (
        TEMPORARY in names
    )
    started = ", and no driver is started until there is room" if refused and "batches" in fail else ""
    return f"On a full disk {' and '.join(fail) or 'writes'} fail{started}."


def check_one_disk(
    checkpoint: str, repository: str, replicas: Sequence[str], mount_of: MountOf
) -> Iterator[CheckResult]:
    """Checkpoint and savepoints that one broken disk takes together."""
    storages = [_storage(location, mount_of) for location in (checkpoint, repository, *replicas)]
    if storages[0] is None or storages[0] != storages[1]:
        return
    if any(storage is None or storage != storages[0] for storage in storages[2:]):
        return
    what = f"the disk {storages[0]}" if scheme_of(checkpoint) == "file" else f"the bucket {storages[0]}"
    disk = scheme_of(checkpoint) == "file"
    yield Finding(
        "one-disk",
        "warning" if disk else "info",
        repository,
        f"The checkpoint {checkpoint} and the repository are both on {what}"
        + (", and so is every replica." if replicas else ", and there is no replica."),
        "What breaks or deletes the one takes the savepoints with it.",
        _ELSEWHERE,
    )


def check_openness(checkpoint: str, repository: str) -> Iterator[Finding]:
    """Savepoints on a disk that more users may read than the checkpoint."""
    here, there = openness(checkpoint), openness(repository)
    if here is None or there is None or not there.mode & ~here.mode & 0o055:
        return
    who = "everybody on this machine" if there.mode & ~here.mode & 0o005 else "its group"
    yield Finding(
        "repository-more-open",
        "warning",
        repository,
        f"The repository can be read by {who} (mode {there}), and the checkpoint cannot ({here}).",
        "The state of the query is in both.",
        f"Close it: `chmod {here.mode:o} {local_path(repository)}`.",
    )


def _storage(location: str, mount_of: MountOf) -> str | None:
    path = local_path(location)
    if path is not None:
        mount = mount_of(path)
        return None if mount is None else mount.storage
    scheme, _, rest = location.partition("://")
    return f"{'s3' if scheme == 's3a' else scheme}://{rest.partition('/')[0]}" if scheme != "memory" else None


def check_apart_from_data(folders: DataFolders, places: Mapping[str, str]) -> Iterator[Finding]:
    """What lies where the query reads or writes files."""
    for what, place in places.items():
        refused = folders.refusal(place, what)
        said = folders.doubt(place, what) if refused is None else refused.message
        way_out = (
            f"Move the {what} elsewhere, beside input and output, while no driver runs; or give it a name "
            "that begins with _, which Spark passes over."
        )
        if refused is not None and refused.code == "inside-output":
            yield Finding(
                "inside-output",
                "warning",
                place,
                refused.message,
                "A reader of the output that does not go by _spark_metadata reads these files, too.",
                way_out,
            )
        elif said is not None:
            yield Finding(
                "inside-input",
                "warning" if refused is None else "error",
                place,
                said,
                "Rows that are none come into the query, each time that something is written there.",
                way_out,
            )


def check_rules(what: str, store: Store) -> Iterator[CheckResult]:
    """Rules of a bucket that delete or archive what lies below a prefix."""
    if not isinstance(store, Served):
        return
    try:
        rules = store.lifecycle_rules()
    except StorageError as error:
        yield SkippedCheck(f"lifecycle rules of the bucket of the {what}", error.message, error.hint)
        return
    for rule in rules:
        if rule.tagged or not (store.prefix.startswith(rule.prefix) or rule.prefix.startswith(store.prefix)):
            continue
        yield Finding(
            "lifecycle-rule",
            "error",
            store.uri,
            f"The bucket's rule {rule.name!r}, for keys that begin with {rule.prefix!r}, "
            f"{' and '.join(rule.does)}.",
            f"It takes files of the {what} that are still needed: their age says nothing of that.",
            "Take this prefix out of the rule; let Streambank expire and sweep what is not needed.",
        )


def check_fence(checkpoint: str, *, declared: bool, leased: bool, began: bool) -> Iterator[Finding]:
    """Spark's checkpoint manager on S3A lets two drivers write one log, and nothing else is in their way.

    Args:
        leased: Whether a driver ever held that job's lease.
        began: Whether a batch was ever planned.
    """
    if scheme_of(checkpoint) not in ("s3", "s3a") or not began or (declared and leased):
        return
    why = (
        "the lease of its job was never held, so its driver was not started by Streambank"
        if declared
        else "no job is named that has a lease for it"
    )
    yield Finding(
        "unfenced-s3",
        "warning",
        checkpoint,
        f"The checkpoint is on S3, and {why}.",
        "Spark's checkpoint manager for S3A creates log files that several drivers can win at once: two "
        "drivers on this checkpoint corrupt it in silence.",
        "Declare the job, and let Streambank start it: one lease, one driver.",
    )


def check_authentication(conf: SparkConf) -> Iterator[Finding]:
    """A cluster in which anybody on the network may talk to the driver and the executors."""
    if conf.is_local or conf.declared.get("spark.authenticate", "").lower() == "true":
        return
    yield Finding(
        "no-authentication",
        "info",
        "",
        f"The job runs on {conf.master}, and its settings have no spark.authenticate = true. Those of the "
        "cluster's own spark-defaults.conf are not seen here.",
        "Without it, anyone who reaches the ports of driver and executors can take part in the application.",
        "Set spark.authenticate, and spark.network.crypto.enabled: docs/howto/launchers.md.",
    )


def check_local_dir(
    conf: SparkConf | None, environment: Mapping[str, str], here: bool, mount_of: MountOf
) -> Iterator[CheckResult]:
    """Where RocksDB works while the query runs: it should be a local SSD.

    Args:
        here: Whether the driver runs, or ran last, on this machine.
    """
    what = "the disk that RocksDB works on"
    if conf is None:
        yield SkippedCheck(what, *UNDECLARED)
        return
    if not conf.is_local or not here:
        where = f"on executors of {conf.master}" if not conf.is_local else "on another machine"
        yield SkippedCheck(
            what, f"The state is {where}, which cannot be read from here.", "Run doctor there."
        )
        return
    source = "SPARK_LOCAL_DIRS" if environment.get("SPARK_LOCAL_DIRS") else "spark.local.dir"
    named = environment.get("SPARK_LOCAL_DIRS") or conf.declared.get("spark.local.dir") or "/tmp"
    for name in filter(None, (folder.strip() for folder in named.split(","))):
        yield from _judge_local(Path(name), source, mount_of)


def _judge_local(path: Path, source: str, mount_of: MountOf) -> Iterator[CheckResult]:
    mount = mount_of(path)
    if mount is None:
        yield SkippedCheck(
            "the disk that RocksDB works on", "This machine does not list its mounts.", "Look by hand."
        )
        return
    if mount.kind in REMOTE:
        slow = f"a file system of the type {mount.kind}, over a network"
    elif mount.kind in MEMORY:
        slow = f"a file system of the type {mount.kind}, whose files take memory"
    elif mount.spins:
        slow = f"the disk {mount.disk}, which spins"
    elif mount.spins is None:
        disk = f"the disk {mount.disk}" if mount.disk else f"a file system of the type {mount.kind}"
        yield SkippedCheck(
            "the disk that RocksDB works on",
            f"{path} ({source}) is on {disk}, which does not tell what is behind it.",
            "Make sure that it is a local SSD.",
        )
        return
    else:
        return
    yield Finding(
        "rocksdb-local-dir",
        "warning",
        str(path),
        f"RocksDB works in {path} ({source}), which is on {slow} ({mount.point}).",
        "Each batch reads and writes there: RocksDB is made for a local SSD.",
        "Set SPARK_LOCAL_DIRS, or spark.local.dir of the job, to a directory on a local SSD.",
    )


def check_records_apart(job: str, records: Store, repository: Store) -> Iterator[Finding]:
    """Records that lie among savepoints: who may write those can say what the job does."""
    if not is_inside(records.uri, repository.uri):
        return
    others = [name for name in repository.names("savepoints") if name != job]
    shared = f", where savepoints of {', '.join(others[:3])}{' and others' if others[3:] else ''} are, too"
    yield Finding(
        "records-in-repository",
        "warning" if others else "info",
        records.uri,
        f"The records of job {job} are inside its repository {repository.uri}{shared if others else ''}.",
        "Who may write savepoints can also say which checkpoint is current, and start and stop the job.",
        f"Stop the job, and move them: `streambank job move-records {job}`. docs/howto/access.md says which "
        "rights each place needs.",
    )


def check_owners(job: Job, declared: Declarations) -> Iterator[CheckResult]:
    """Jobs of several owners that share a place, by the owners that are declared for Airflow."""
    mine = job.airflow.owner
    for name, one in declared.broken.items() if mine else ():
        what = f"whether it shares a place with job {name} of another owner"
        yield SkippedCheck(what, one.error.message, one.error.hint)
    jobs = declared.jobs.values()
    others = [job for job in jobs if mine and job.airflow.owner not in (None, mine)]
    for what, place in (("repository", job.repository), ("control location", job.control)):
        shared = sorted(
            {str(other.airflow.owner) for other in others if place in (other.repository, other.control)}
        )
        if shared and place is not None:
            yield Finding(
                "several-owners",
                "warning",
                str(place),
                f"The {what} of job {job.name} ({mine}) is also that of jobs of {', '.join(shared)}.",
                "Each of them can forge or delete what the others have there.",
                f"Give the jobs of each owner a separate {what}, and each owner rights on that one only: "
                "docs/howto/access.md.",
            )
