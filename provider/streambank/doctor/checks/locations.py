"""Where things lie: on one disk, in memory, in a folder that Spark deletes, under rules that delete.

Which file system and which disk a path of this machine is on, by /proc and /sys.

Sources: proc_pid_mountinfo(5); Documentation/block/queue-sysfs and sysfs-block of the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streambank.core.errors import StorageError
from streambank.core.finding import Finding
from streambank.doctor.spark_conf import SparkConf
from streambank.doctor.subject import UNDECLARED, CheckResult, SkippedCheck
from streambank.storage import local_path, scheme_of
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
_VIRTUAL = re.compile(r"(vd|xvd|sr|nbd|rbd)[a-z0-9]*")
"""Disks of virtual machines: what they say of themselves is their host's default, whatever is behind them."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """What a path is on.

    Attributes:
        point: Where the file system is mounted.
        kind: Its type, such as `ext4`, `nfs4` or `tmpfs`.
        device: Its device as the kernel numbers it, `major:minor`.
        disk: Name of the whole disk that it lies on; None where there is none, or it cannot be told.
        spins: Whether the kernel knows that disk for a spinning one; None where it cannot know.
    """

    point: str
    kind: str
    device: str
    disk: str | None
    spins: bool | None

    @property
    def storage(self) -> str:
        """What tells one place from another: the disk, or else the file system's device."""
        return self.disk or self.device


def mount_of(path: str | os.PathLike[str], root: Path = Path("/")) -> Mount | None:
    """What a path is on; of one that does not exist, what its nearest existing parent is on.

    Args:
        path: The path.
        root: Where `proc` and `sys` are; tests give another place.

    Returns:
        None where this machine does not tell.
    """
    place = Path(os.path.realpath(path))
    while not place.exists() and place != place.parent:
        place = place.parent
    found: tuple[str, str, str] | None = None
    try:
        lines = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields, _, rest = line.partition(" - ")
        parts = fields.split()
        if len(parts) < 5 or not rest:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), parts[4])
        # The last one of the same place covers those before it.
        if _is_below(str(place), point) and (found is None or len(point) >= len(found[0])):
            found = point, rest.split()[0], parts[2]
    if found is None:
        return None
    disk = _disk(found[2], root)
    return Mount(*found, disk, _spins(disk, root))


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


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _disk(device: str, root: Path) -> str | None:
    """The whole disk of a device, which may be a partition of it."""
    link = root / "sys/dev/block" / device
    if not link.exists():
        return None
    place = Path(os.path.realpath(link))
    return place.parent.name if (place / "partition").exists() else place.name


def _spins(disk: str | None, root: Path) -> bool | None:
    if disk is None or _VIRTUAL.fullmatch(disk):
        return None
    try:
        said = (root / "sys/block" / disk / "queue/rotational").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return {"0": False, "1": True}.get(said)


MountOf = Callable[[Path], Mount | None]
_TEMPORARY = re.compile(r"temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ELSEWHERE = "Keep the repository on another disk or service, or replicate it there: docs/howto/replicas.md."


def check_location(location: str, mount_of: MountOf) -> Iterator[Finding]:
    """A checkpoint that goes away by itself.

    Args:
        location: Its URI.
        mount_of: What a path is on.
    """
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
    """Checkpoints of queries on this machine that name no checkpoint location.

    Args:
        temporary: Where Java keeps temporary files.
    """
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


def check_one_disk(
    checkpoint: str, repository: str, replicas: Sequence[str], mount_of: MountOf
) -> Iterator[CheckResult]:
    """Checkpoint and savepoints that one broken disk takes together.

    Args:
        checkpoint: URI of the checkpoint.
        repository: URI of the repository.
        replicas: URIs of the repository's replicas.
        mount_of: What a path is on.
    """
    storages = [_storage(one, mount_of) for one in (checkpoint, repository, *replicas)]
    if storages[0] is None or storages[0] != storages[1]:
        return
    if any(one is None or one != storages[0] for one in storages[2:]):
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


def _storage(location: str, mount_of: MountOf) -> str | None:
    """What a location is on, as far as that can be told."""
    path = local_path(location)
    if path is not None:
        mount = mount_of(path)
        return None if mount is None else mount.storage
    scheme, _, rest = location.partition("://")
    return f"{'s3' if scheme == 's3a' else scheme}://{rest.partition('/')[0]}" if scheme != "memory" else None


def check_rules(what: str, store: Store) -> Iterator[CheckResult]:
    """Rules of a bucket that delete or archive what lies below a prefix.

    Args:
        what: What lies there: the checkpoint, the repository.
        store: Where.
    """
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
        checkpoint: URI of the checkpoint.
        declared: Whether the query is one of a declared job.
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


def check_local_dir(
    conf: SparkConf | None, environment: Mapping[str, str], here: bool, mount_of: MountOf
) -> Iterator[CheckResult]:
    """Where RocksDB works while the query runs: it should be a local SSD.

    Args:
        conf: The job's settings; None where nobody declares it.
        environment: What a driver started here would get.
        here: Whether the driver runs, or ran last, on this machine.
        mount_of: What a path is on.
    """
    what = "the disk that RocksDB works on"
    if conf is None:
        yield SkippedCheck(what, *UNDECLARED)
        return
    if not conf.is_local or not here:
        where = f"on executors of {conf.master}" if not conf.is_local else "on another machine"
        yield SkippedCheck(
            what, f"The state is {where}, which cannot be looked at from here.", "Run doctor there."
        )
        return
    source = "SPARK_LOCAL_DIRS" if environment.get("SPARK_LOCAL_DIRS") else "spark.local.dir"
    named = environment.get("SPARK_LOCAL_DIRS") or conf.declared.get("spark.local.dir") or "/tmp"
    for name in filter(None, (one.strip() for one in named.split(","))):
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
