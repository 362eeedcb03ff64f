from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control import processes
from streambank.control.processes import end_gently, process, send_signal, this_host, this_process, who
from streambank.core.shape import decode
from tests.support.jobs.declared import ELSEWHERE
from tests.support.processes import DEAF, TIDY, child, say
from tests.support.waiting import poll

SLEEP = "print('up', flush=True); input()"


def test_a_process_lives_until_it_is_gone() -> None:
    with child(SLEEP) as one:
        say(one)
        known = process(one.pid, "python")
        assert known is not None and known.is_living()
        os.kill(one.pid, signal.SIGSTOP)
        poll(lambda: processes._read_stat(one.pid)[0] == "T")
        assert known.is_living(), "a stopped process may go on any moment"
        os.kill(one.pid, signal.SIGKILL)
        # Not reaped yet, so a zombie; that counts as gone.
        poll(lambda: not known.is_living())
        assert (processes._read_stat(one.pid)[0], process(one.pid, "python")) == ("Z", None)
    assert not known.is_living()
    assert process(one.pid, "python") is None


def test_a_pid_that_was_used_again_is_another_process() -> None:
    ours = this_process("python")
    assert ours.is_living()
    earlier = replace(ours, start_ticks=ours.start_ticks - 1)
    assert not earlier.is_living()
    assert not send_signal(earlier, signal.SIGKILL), "the later process must not be hit"


def test_a_process_may_tidy_up_before_it_ends_and_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    for code, within_s, ends, left in ((TIDY, 60.0, 143, False), (DEAF, 0.2, -signal.SIGKILL, True)):
        (tmp_path / "temporary").touch()
        with child(code, tmp_path / "temporary") as one:
            assert say(one) == "up"
            known = process(one.pid, "jvm")
            assert known is not None
            end_gently([known], within_s)
            assert one.wait(timeout=10) == ends
            assert (tmp_path / "temporary").exists() is left
            end_gently([known], within_s)  # it is gone


def test_a_signal_reaches_its_process_and_says_when_it_is_gone() -> None:
    with child(SLEEP) as one:
        say(one)
        known = process(one.pid, "python")
        assert known is not None
        assert send_signal(known, signal.SIGKILL)
        assert one.wait(timeout=10) == -signal.SIGKILL
        assert not send_signal(known, signal.SIGKILL)


def test_where_there_are_no_descriptors_of_processes_the_pid_is_looked_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(pid: int) -> int:
        raise PermissionError(pid)

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    ours = this_process("python")
    assert not send_signal(replace(ours, start_ticks=ours.start_ticks - 1), signal.SIGKILL)
    with child(SLEEP) as one:
        say(one)
        known = process(one.pid, "python")
        assert known is not None and send_signal(known, signal.SIGKILL)
        assert one.wait(timeout=10) == -signal.SIGKILL


def test_a_process_hidden_by_proc_counts_as_living(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(pid: int) -> tuple[str, int, int]:
        raise FileNotFoundError(pid)

    def belongs_to_another(pid: int, number: int) -> None:
        raise PermissionError(pid)

    ours = this_process("python")
    monkeypatch.setattr(processes, "_read_stat", hidden)
    monkeypatch.setattr(os, "kill", belongs_to_another)
    assert ours.is_living()


def test_a_name_with_parentheses_does_not_shift_the_fields() -> None:
    rename = (
        "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z (b', 0, 0, 0); print('up', flush=True); input()"
    )
    with child(rename) as one:
        say(one)
        known = process(one.pid, "python")
        assert known is not None and known.is_living()


def test_hosts_see_each_others_processes_only_in_one_boot_and_namespace() -> None:
    host = this_host()
    assert host.sees(replace(host, host="another-name"))
    assert not host.sees(replace(host, pid_namespace="pid:[42]"))
    assert not host.sees(ELSEWHERE)
    assert decode(processes.HostId, host.to_dict(), "host") == host


def test_who_leaves_out_what_is_not_known() -> None:
    asked = who("airflow", dag_id="d", run_id=None)
    assert asked["via"] == "airflow" and asked["dag_id"] == "d" and "run_id" not in asked and asked["user"]
