"""Mounts and disks of machines that are made of files, and of this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.doctor.checks.locations import machine_bytes
from streambank.storage.local.mounts import mount_of

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 259:2 / {data} rw - xfs /dev/nvme0n1p2 rw
25 24 0:50 / {data}/far\\040away rw,relatime shared:7 - nfs4 host:/x rw
26 22 254:0 / {data}/virtual rw - ext4 /dev/vda rw
garbage
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Its `proc` and `sys`, and below `data` directories that it has mounted."""
    root, data = tmp_path / "root", tmp_path / "data"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(MOUNTS.format(data=data))
    (root / "proc/meminfo").write_text("MemTotal:       8000000 kB\nMemFree: 1 kB\n")
    for name in ("far away", "virtual"):
        (data / name).mkdir(parents=True)
    for disk, part, device, spins in (("sda", "sda1", "8:1", "1"), ("nvme0n1", "nvme0n1p2", "259:2", "0")):
        place = root / "sys/devices" / disk / part
        place.mkdir(parents=True)
        (place / "partition").write_text("1")
        link(root, device, place)
        queue(root, disk, spins)
    (root / "sys/devices/vda").mkdir()
    link(root, "254:0", root / "sys/devices/vda")
    queue(root, "vda", "1")
    return root


def link(root: Path, device: str, place: Path) -> None:
    (root / "sys/dev/block").mkdir(parents=True, exist_ok=True)
    (root / "sys/dev/block" / device).symlink_to(place)


def queue(root: Path, disk: str, spins: str) -> None:
    (root / "sys/block" / disk / "queue").mkdir(parents=True)
    (root / "sys/block" / disk / "queue/rotational").write_text(f"{spins}\n")


@pytest.mark.parametrize(
    ("path", "kind", "disk", "spins"),
    [
        ("/", "ext4", "sda", True),
        ("data", "xfs", "nvme0n1", False),
        ("data/not/there/yet", "xfs", "nvme0n1", False),
        ("data/far away/x", "nfs4", None, None),
        ("data/virtual", "ext4", "vda", None),
    ],
)
def test_the_innermost_mount_and_its_whole_disk(
    machine: Path, path: str, kind: str, disk: str | None, spins: bool | None
) -> None:
    found = mount_of(machine.parent / path, machine)
    assert found is not None
    assert (found.kind, found.disk, found.spins) == (kind, disk, spins)


def test_this_machine_tells_and_one_without_proc_does_not(machine: Path, tmp_path: Path) -> None:
    here = mount_of(tmp_path)
    assert here is not None and here.device == "{}:{}".format(*device_of(tmp_path))
    assert mount_of(tmp_path, tmp_path / "nothing") is None
    assert machine_bytes(tmp_path / "nothing") is None


def device_of(path: Path) -> tuple[int, int]:
    number = path.stat().st_dev
    return os.major(number), os.minor(number)


def test_memory_is_the_containers_where_that_has_less(machine: Path) -> None:
    assert machine_bytes(machine) == 8_192_000_000
    (machine / "sys/fs/cgroup").mkdir(parents=True)
    (machine / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert machine_bytes(machine) == 8_192_000_000
    (machine / "sys/fs/cgroup/memory.max").write_text("1000000\n")
    assert machine_bytes(machine) == 1_000_000
