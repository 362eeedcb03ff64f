"""Who is alive on this host: processes told apart by pid *and* start time, hosts by boot and pid namespace.

A pid alone proves nothing (it is used again), and a host name proves nothing either (containers share names,
and two containers on one machine share its boot id while neither sees the other's processes). So a process is
judged only by an observer of the same boot *and* the same pid namespace; all others go by heartbeats
(lease.py).

Source: proc_pid_stat(5), proc_pid_cmdline(5), `begin_new_exec` of Linux (fs/exec.c); a stopped process
(SIGSTOP) counts as living, since it may go on any moment.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from streambank.core.environment import user_name
from streambank.core.errors import StorageError
from streambank.core.shape import Between, JsonObject

_PROC = Path("/proc")
_LAST_PID = 2**22
"""The largest that Linux gives (`PID_MAX_LIMIT`)."""
_PF_KTHREAD = 0x00200000
_LOOK_S = 0.02
_EXEC_S = 2.0
"""The longest that a process is taken to become another program."""
_EXEC_LOOK_S = 0.001


@dataclass(frozen=True, slots=True)
class HostId(JsonObject):
    """Where processes can see each other.

    Attributes:
        pid_namespace: The pid namespace (`pid:[4026531836]`): containers have their own.
    """

    host: str
    boot_id: str
    pid_namespace: str

    def sees(self, other: HostId) -> bool:
        """Whether processes recorded by `other` can be looked up from here. Names do not count."""
        return (self.boot_id, self.pid_namespace) == (other.boot_id, other.pid_namespace)


@dataclass(frozen=True, slots=True)
class ProcessId(JsonObject):
    """One process, told apart from a later one with the same pid.

    Attributes:
        role: What it is: `python`, `jvm`, `operation`, `launcher`.
        start_ticks: Its start in clock ticks since boot (field 22 of /proc/PID/stat).
    """

    role: str
    pid: Annotated[int, Between(1, _LAST_PID)]  # `kill(2)` takes 0 and below for groups
    start_ticks: int

    def is_living(self) -> bool:
        """Whether this very process exists here, running or stopped.

        A zombie without threads is dead: it will never run again. A process that exists but may not be seen
        counts as living.
        """
        try:
            state, threads, start_ticks = _read_stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return _exists(self.pid)
        except PermissionError:
            return True
        return start_ticks == self.start_ticks and not (state in "ZX" and threads <= 1)

    def is_frozen(self) -> bool:
        """Whether it lives, and a signal (SIGSTOP) or a debugger has stopped it; false where it is unseen."""
        try:
            state, _, start_ticks = _read_stat(self.pid)
        except OSError:
            return False
        return start_ticks == self.start_ticks and state in "Tt"


def _read_stat(pid: int) -> tuple[str, int, int]:
    """State, number of threads and start time of a process."""
    fields = _stat_fields(pid)
    return fields[0], int(fields[17]), int(fields[19])


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on."""
    text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    # The name, in parentheses, may hold spaces and parentheses itself: fields are counted from the last one.
    return text[text.rindex(")") + 2 :].split()


def _exists(pid: int) -> bool:
    """Whether the pid is taken by a process that /proc hides from us (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # It came up between the two looks; it is ours to see, so a second look decides.
    return (_PROC / str(pid)).exists()


def this_host() -> HostId:
    """The boot and pid namespace that this process lives in."""
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return HostId(socket.gethostname(), boot_id, str((_PROC / "self/ns/pid").readlink()))


def process(pid: int, role: str) -> ProcessId | None:
    """The process that has this pid now, or None where there is none (a zombie counts as none)."""
    try:
        state, threads, start_ticks = _read_stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" and threads <= 1 else ProcessId(role, pid, start_ticks)


def program_of(one: ProcessId) -> str | None:
    """The name of the program that a process runs, such as `java`; None where it is gone, or may not be seen.

    What its arguments say, since the path of its file is shown only to whoever may trace it.
    """
    arguments = command_line(one.pid)
    return Path(arguments[0]).name if arguments and one.is_living() else None


def command_line(pid: int) -> list[str]:
    """The arguments of a process; none where it is gone or hidden, a zombie, or one of the kernel's own.

    While a process becomes another program (execve), it has none for a moment: the kernel takes over the new
    memory before it has laid the arguments into it. Starting a driver is half a dozen such moments, and who
    took one of them for "not there" would miss a driver that comes up. So that moment is waited for.
    """
    deadline = time.monotonic() + _EXEC_S
    while True:
        try:
            data = (_PROC / str(pid) / "cmdline").read_bytes()
            if data or not _has_arguments(pid) or time.monotonic() >= deadline:
                said = os.fsdecode(data.rstrip(b"\0"))
                return said.split("\0") if said else []
        except OSError:  # it ended meanwhile, or is hidden from this user
            return []
        time.sleep(_EXEC_LOOK_S)


def _has_arguments(pid: int) -> bool:
    """Whether it is a program that lives: zombies and threads of the kernel have no arguments."""
    fields = _stat_fields(pid)
    return fields[0] not in "ZX" and not int(fields[6]) & _PF_KTHREAD


def is_own(pid: int) -> bool:
    """Whether a process runs as this user and as no other; False where it is gone.

    The owner of /proc/PID does not say: that of a process that may not be traced is root.
    """
    try:
        status = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")), [])
    return set(ids) == {str(os.geteuid())}


def child_process(pid: int, role: str) -> ProcessId:
    """A child of this process that nobody has waited for yet; it may have ended already."""
    return ProcessId(role, pid, _read_stat(pid)[2])


def this_process(role: str) -> ProcessId:
    """This process."""
    return ProcessId(role, os.getpid(), _read_stat(os.getpid())[2])


def who(via: str, **more: str | None) -> dict[str, str]:
    """Who asks, for the records: user, host, the way (`cli`, `airflow`), and what else is known."""
    return {"user": user_name(), "host": socket.gethostname(), "via": via} | {
        k: v for k, v in more.items() if v is not None
    }


def is_same_run(by: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether one DAG run has asked for both; scheduled runs of two DAGs at one time have the same id.

    Args:
        by: As `who` said it.
    """
    return bool(by.get("run_id")) and all(by.get(name) == other.get(name) for name in ("dag_id", "run_id"))


def person(by: Mapping[str, Any]) -> str:
    """Who asked, for people: who triggered a DAG run, before the account that ran its task.

    Args:
        by: As `who` said it.
    """
    name = by.get("triggered_by") or by.get("user") or "somebody"
    return f"{name} by {by['dag_id']}" if by.get("dag_id") else f"{name} on {by.get('host', 'some host')}"


def end_gently(targets: Iterable[ProcessId], within_s: float) -> None:
    """Send TERM to processes, and SIGKILL to those that have not ended in time.

    A JVM that ends by TERM removes its temporary files.

    Raises:
        StorageError: This user may not (code `not-permitted`).
    """
    left = [target for target in targets if send_signal(target, signal.SIGTERM)]
    until = time.monotonic() + within_s
    while (left := [target for target in left if target.is_living()]) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for target in left:
        send_signal(target, signal.SIGKILL)


def send_signal(target: ProcessId, number: int) -> bool:
    """Send a signal to this very process, never to a later one with its pid; False where it is gone.

    Raises:
        StorageError: This user may not (code `not-permitted`).
    """
    try:
        descriptor: int | None = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return False
    except OSError:  # the kernel has none, or a container forbids them
        descriptor = None
    try:
        # The descriptor names the process that has the pid now; whether it is the one that is meant is asked
        # after.
        if not target.is_living():
            return False
        if descriptor is None:
            os.kill(target.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise StorageError(
            f"Process {target.pid} ({target.role}) belongs to another user.",
            code="not-permitted",
            hint="Run this as that user.",
        ) from error
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True
