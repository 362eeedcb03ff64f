"""Queries as doctor looks at them: recorded checkpoints, made-up figures, machines that there are not."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from streambank.checkpoint.closure import Closure, ClosurePlanner
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.finding import Finding
from streambank.core.units import utc_now
from streambank.doctor.checks.checkpoint import check_inputs
from streambank.doctor.checks.locations import MountOf
from streambank.doctor.checks.state_growth import StateColumns, columns_of
from streambank.doctor.spark_conf import SparkConf
from streambank.doctor.subject import SkippedCheck
from streambank.storage import Store
from streambank.storage.local.mounts import Mount
from tests.support.checkpoint.recorded import Checkpoint, checkpoint


def found(seen: Iterable[object]) -> dict[str, Finding]:
    return {one.code: one for one in seen if isinstance(one, Finding)}


def skipped(seen: Iterable[object]) -> list[SkippedCheck]:
    return [one for one in seen if isinstance(one, SkippedCheck)]


def check_checkpoint(
    store: Store, sinks: Mapping[str, Store] | None = None, now: datetime | None = None
) -> list[Finding]:
    """What doctor says of a checkpoint by its files."""
    reader = CheckpointReader(store)
    inspection = reader.inspect()
    return check_inputs(store, inspection, reader.listing(), sinks or {}, now or utc_now())


def planned(of: str | Checkpoint) -> tuple[Closure, ClosurePlanner]:
    """The safe closure of a recorded checkpoint's newest batch."""
    files = checkpoint(of) if isinstance(of, str) else of
    planner = ClosurePlanner(CheckpointIndex.build(files.listing()), files.read)
    return planner.plan(), planner


def columns(of: str | Checkpoint) -> list[StateColumns]:
    kept = [*columns_of(*planned(of))]
    assert not skipped(kept)
    return [one for one in kept if isinstance(one, StateColumns)]


def conf(master: str = "local[2]", **declared: str) -> SparkConf:
    """Settings, with `__` for the dots of their names."""
    return SparkConf(master, {name.replace("__", "."): value for name, value in declared.items()})


def schema_v2(key: Mapping[str, Any], value: Mapping[str, Any]) -> bytes:
    """A state schema file of version 2, of fields by name and type (or type and metadata)."""

    def text(said: str) -> bytes:
        return struct.pack(">H", len(said)) + said.encode()

    def fields(said: Mapping[str, Any]) -> bytes:
        listed = [
            {"name": name, "type": kind, "nullable": True, "metadata": metadata}
            for name, both in said.items()
            for kind, metadata in [both if isinstance(both, tuple) else (both, {})]
        ]
        return struct.pack(">i", 1) + text(json.dumps({"type": "struct", "fields": listed}))

    return text("v2") + fields(key) + fields(value)


def mounts(**by_prefix: Mount) -> MountOf:
    """A machine on which paths below `/NAME` are on a mount; all others on a local SSD."""

    def mount_of(path: Path) -> Mount:
        parts = path.parts
        return by_prefix.get(parts[1] if len(parts) > 1 else "", SSD)

    return mount_of


SSD = Mount("/", "ext4", "259:1", "nvme0n1", False)
DISK = Mount("/disk", "xfs", "8:1", "sda", True)
NFS = Mount("/nfs", "nfs4", "0:50", None, None)
MEMORY = Mount("/memory", "tmpfs", "0:33", None, None)
VIRTUAL = Mount("/virtual", "ext4", "254:0", "vda", None)
