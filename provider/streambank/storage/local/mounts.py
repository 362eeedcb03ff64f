"""Which file system and which disk a path of this machine is on, by /proc and /sys.

Sources: proc_pid_mountinfo(5); Documentation/block/queue-sysfs and sysfs-block of the kernel.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_VIRTUAL = re.compile(r"(vd|xvd|sr|nbd|rbd)[a-z0-9]*")
"""Disks of virtual machines: what they say of themselves is their host's default, whatever is behind them."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """What a path is on.

    Attributes:
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
    """What a path, or else its nearest parent, is on; None where this machine does not tell."""
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


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _disk(device: str, root: Path) -> str | None:
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
