"""Processes of this machine as /proc shows them: parents, sessions, and how to end them reliably.

A driver that an Airflow task starts is detached on purpose: neither its parent nor its process group leads
back to the demo. Therefore the keeper declares itself a *subreaper*: Linux then makes it the parent of every
orphan among its descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# From <linux/prctl.h>
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TCP_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it was when looked at; `started` (clock ticks since boot) tells it from a namesake."""

    pid: int
    parent: int
    session: int
    started: int
    state: str
    command: str

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and only waits for its parent to notice."""
        return self.state in {"Z", "X"}


def look_at(pid: int) -> Process | None:
    """The process with this pid, or None where there is none (any more)."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
        command = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # pid (comm) state ppid pgrp session tty ... starttime; comm may hold brackets, so count from its end.
    fields = stat[stat.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        state=fields[0],
        command=command.replace(b"\0", b" ").decode(errors="replace").strip(),
    )


def everything() -> dict[int, Process]:
    """All processes that can be seen now, by pid."""
    found = (look_at(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(root: int) -> list[Process]:
    """The children of a process, their children, and so on; zombies are left out."""
    seen = everything()
    children: dict[int, list[Process]] = {}
    for process in seen.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child.pid)
            if not child.is_zombie:
                found.append(child)
    return found


def marked(name: str, value: str) -> list[Process]:
    """Processes with this variable in their environment, and their descendants, except us and ours."""
    mark = f"{name}={value}".encode()
    ours = ancestors(os.getpid()) | {os.getpid()}
    found: dict[int, Process] = {}
    for process in everything().values():
        if process.pid in ours or process.is_zombie or mark not in _environment(process.pid).split(b"\0"):
            continue
        found[process.pid] = process
        found.update({child.pid: child for child in descendants(process.pid)})
    return list(found.values())


def _environment(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def ancestors(pid: int) -> set[int]:
    """The pids of a process's parent, of that one's parent, and so on."""
    found: set[int] = set()
    while (process := look_at(pid)) is not None and process.parent > 0 and process.parent not in found:
        found.add(process.parent)
        pid = process.parent
    return found


def is_alive(process: Process) -> bool:
    """Whether this very process still runs (not another one with its pid)."""
    now = look_at(process.pid)
    return now is not None and now.started == process.started and not now.is_zombie


def signal_all(processes: Iterable[Process], number: signal.Signals) -> None:
    """Send a signal to those of the processes that still run."""
    for process in processes:
        if is_alive(process):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue


def end(
    select: Callable[[], list[Process]], *, grace_s: float, on_poll: Callable[[], None] = lambda: None
) -> list[Process]:
    """Ask the processes that `select` finds to end, wait, then kill the rest, until it finds none.

    Args:
        select: Called again at every step, since an ending process may leave orphans or start helpers.
        grace_s: How long to wait after SIGTERM before SIGKILL follows.
        on_poll: Called at every step; a subreaper reaps its zombies here.

    Returns:
        What is still there 10 seconds after SIGKILL: empty, unless the kernel itself is stuck.
    """
    asked: set[tuple[int, int]] = set()
    polite_until = time.monotonic() + grace_s
    give_up_at = polite_until + 10
    while True:
        on_poll()
        left = select()
        if not left or time.monotonic() > give_up_at:
            return left
        if time.monotonic() < polite_until:
            new = [process for process in left if (process.pid, process.started) not in asked]
            asked.update((process.pid, process.started) for process in new)
            signal_all(new, signal.SIGTERM)
        else:
            signal_all(left, signal.SIGKILL)
        time.sleep(0.1)


def reap() -> dict[int, int]:
    """Collect children that ended, orphans handed to us too: pid -> exit code (negative: the signal)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send us this signal the moment our parent is gone, however it went."""
    _prctl(PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def listening(processes: Iterable[Process]) -> set[tuple[str, int]]:
    """The addresses and ports on which these processes accept TCP connections."""
    sockets = {link[8:-1] for process in processes for link in _open_files(process.pid) if "socket:[" in link}
    found: set[tuple[str, int]] = set()
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == TCP_LISTEN and fields[9] in sockets:
                address, port = fields[1].split(":")
                found.add((_readable(address), int(port, 16)))
    return found


def _open_files(pid: int) -> list[str]:
    """What the descriptors of a process lead to; those that close meanwhile are left out."""
    found: list[str] = []
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            try:
                found.append(str(entry.readlink()))
            except FileNotFoundError:
                continue
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return found
    return found


def _readable(address: str) -> str:
    """An address of /proc/net/tcp: words of four bytes, each in the machine's (little-endian) order."""
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    if len(raw) == 4:
        return ".".join(str(byte) for byte in raw)
    return ":".join(raw[at : at + 2].hex() for at in range(0, 16, 2))
