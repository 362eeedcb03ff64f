from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streambank.errors import StorageError
from streambank.job.driverlog import DriverLog
from tests.support.jobs import poll

CHATTER = """
import sys, time
for number in range(4000):
    print(f"line {number:06d} " + "x" * 80, flush=True)
    if number % 100 == 0:
        time.sleep(0.01)
"""


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = DriverLog(tmp_path / "driver.log", max_bytes=100, files=2)
    assert not log.rotate_if_needed()
    log.path.write_text("hello\n")
    assert not log.rotate_if_needed()
    assert log.last_lines(5) == ["hello"]


def test_the_log_of_a_chatting_process_stays_within_bounds_and_loses_next_to_nothing(tmp_path: Path) -> None:
    log = DriverLog(tmp_path / "driver.log", max_bytes=40_000, files=30)
    with log.path.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-c", CHATTER], stdout=file)
        rotations = 0

        def ended() -> bool:
            nonlocal rotations
            rotations += log.rotate_if_needed()
            return process.poll() is not None

        poll(ended, timeout_s=60)
    assert process.returncode == 0
    assert rotations >= 5
    parts = [log.part(number) for number in range(rotations, 0, -1)]
    text = "".join(part.read_text() for part in [*parts, log.path])
    numbers = [
        int(line.split()[1]) for line in text.splitlines() if line.startswith("line ") and len(line) == 92
    ]
    assert numbers == sorted(set(numbers))
    # Only lines written in the instant between copy and emptying may be missing.
    assert len(numbers) > 4000 - 5 * rotations
    assert "\0" not in text


def test_only_so_many_parts_are_kept_and_a_burst_is_cut(tmp_path: Path) -> None:
    log = DriverLog(tmp_path / "driver.log", max_bytes=1000, files=3)
    for number in range(7):
        log.path.write_text(f"{number}\n" * 2000)
        assert log.rotate_if_needed()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "driver.log",
        "driver.log.1",
        "driver.log.2",
        "driver.log.3",
    ]
    assert log.path.stat().st_size == 0
    assert [log.part(n).read_text()[0] for n in (1, 2, 3)] == ["6", "5", "4"]
    assert all(log.part(n).stat().st_size <= 2000 for n in (1, 2, 3))


def test_the_last_lines_reach_back_over_a_rotation(tmp_path: Path) -> None:
    log = DriverLog(tmp_path / "driver.log", max_bytes=10, files=2)
    log.path.write_text("one\ntwo\nthree\n")
    log.rotate_if_needed()
    log.path.write_text("four\n")
    assert log.last_lines(3) == ["two", "three", "four"]
    assert log.last_lines(9) == ["one", "two", "three", "four"]
    assert DriverLog(tmp_path / "none.log", max_bytes=1, files=1).last_lines(3) == []


def test_lines_of_any_bytes_and_any_length_can_be_shown(tmp_path: Path) -> None:
    log = DriverLog(tmp_path / "driver.log", max_bytes=10, files=2)
    log.path.write_bytes(b"\xff\xfe odd\n" + b"x" * 100_000)
    (line,) = log.last_lines(1)
    assert len(line) == 2000


def test_a_log_that_cannot_be_rotated_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DriverLog(tmp_path / "driver.log", max_bytes=10, files=2)
    log.path.write_text("x" * 100)
    (tmp_path / "driver.log.1").mkdir()
    (tmp_path / "driver.log.2").mkdir()
    (tmp_path / "driver.log.2" / "full").write_text("")
    with pytest.raises(StorageError) as caught:
        log.rotate_if_needed()
    assert caught.value.code == "log-not-rotated"
    assert log.path.stat().st_size == 100 and os.access(log.path, os.W_OK)
