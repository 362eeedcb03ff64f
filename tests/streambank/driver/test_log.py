from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.driver.log import RotatedLog, cut_off_beginning, whole_blocks
from tests.support.paths import ROOT
from tests.support.refuses import refuses

CHATTER = """
import os, sys
for number in range(int(sys.argv[2])):
    os.write(1, f"line {sys.argv[1]} {number:06d} {'x' * 80}\\n".encode())
"""
LINES = 40_000


def can_cut(folder: Path) -> bool:
    """Whether the beginning of a file can be cut off here."""
    with (folder / "probe").open("w+b", buffering=0) as file:
        file.write(b"x" * 1_000_000)
        return cut_off_beginning(file.fileno(), whole_blocks(file.fileno(), 50_000))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On the project's own disk: no file system in memory can cut a file off at its beginning."""
    (ROOT / ".streambank").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".streambank", prefix="test-log-") as folder:
        yield Path(folder)


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "driver.log", max_bytes=100, files=2)
    assert not log.rotate_if_needed()
    log.path.write_text("hello\n")
    assert not log.rotate_if_needed()
    assert log.last_lines(5) == ["hello"]


def test_a_log_that_two_processes_write_as_fast_as_they_can_stays_within_bounds_and_loses_nothing(
    tmp_path: Path,
) -> None:
    log = RotatedLog(tmp_path / "driver.log", max_bytes=500_000, files=60)
    with log.path.open("ab") as file:
        writers = [
            subprocess.Popen([sys.executable, "-c", CHATTER, name, str(LINES)], stdout=file) for name in "ab"
        ]
        while any(writer.poll() is None for writer in writers):
            log.rotate_if_needed()
    assert [writer.returncode for writer in writers] == [0, 0]
    parts = [part for number in range(60, 0, -1) if (part := log.part(number)).exists()]
    assert 5 <= len(parts) < 60
    assert max(part.stat().st_size for part in parts) <= 1_000_000
    text = "".join(part.read_text() for part in [*parts, log.path])
    assert "\0" not in text
    said: dict[str, list[int]] = {"a": [], "b": []}
    for line in text.splitlines():
        if line.startswith("line ") and len(line) == 94:
            said[line.split()[1]].append(int(line.split()[2]))
    for numbers in said.values():
        assert numbers == sorted(set(numbers))
    if can_cut(tmp_path):
        assert len(text) == 2 * LINES * 95
        assert said == {name: list(range(LINES)) for name in "ab"}
    # Elsewhere lines written in the instant between copy and emptying may be missing.
    assert sum(map(len, said.values())) > LINES


def test_where_nothing_can_be_cut_off_the_log_is_copied_and_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def cannot(descriptor: int, size_bytes: int) -> bool:
        tried.append(size_bytes)
        return False

    monkeypatch.setattr("streambank.driver.log.cut_off_beginning", cannot)
    log = RotatedLog(tmp_path / "driver.log", max_bytes=10_000, files=3)
    text = "".join(f"line {number}\n" for number in range(2000))
    log.path.write_text(text)

    assert log.rotate_if_needed()

    assert len(tried) == 1
    assert (log.path.read_text(), log.part(1).read_text()) == ("", text)


def test_a_line_over_the_seam_of_a_rotation_is_one_line(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "driver.log", max_bytes=20_000, files=3)
    lines = [f"line {number:06d} {'x' * 100}" for number in range(300)]
    log.path.write_text("".join(f"{line}\n" for line in lines))
    assert log.rotate_if_needed()
    with log.path.open("a") as file:
        file.write("the end\n")

    assert log.last_lines(200) == [*lines[-199:], "the end"]
    assert log.last_lines(1) == ["the end"]


def test_a_disk_that_fails_while_it_cuts_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "driver.log").write_bytes(b"x" * 100_000)
    with (tmp_path / "driver.log").open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        cut_off_beginning(file.fileno(), whole_blocks(file.fileno(), 50_000))  # it is not open for writing


def test_only_so_many_parts_are_kept_and_a_burst_is_cut(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "driver.log", max_bytes=1000, files=3)
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
    log = RotatedLog(tmp_path / "driver.log", max_bytes=10, files=2)
    log.path.write_text("one\ntwo\nthree\n")
    log.rotate_if_needed()
    log.path.write_text("four\n")
    assert log.last_lines(3) == ["two", "three", "four"]
    assert log.last_lines(9) == ["one", "two", "three", "four"]
    assert RotatedLog(tmp_path / "none.log", max_bytes=1, files=1).last_lines(3) == []


def test_lines_of_any_bytes_and_any_length_can_be_shown(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "driver.log", max_bytes=10, files=2)
    log.path.write_bytes(b"\xff\xfe odd\n" + b"x" * 100_000)
    (line,) = log.last_lines(1)
    assert len(line) == 2000


def test_a_rotation_on_a_full_disk_costs_no_older_part_but_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again each second: parts that moved on each time would all be gone in a moment."""
    log = RotatedLog(tmp_path / "driver.log", max_bytes=100, files=4)
    log.path.write_text("x" * 10_000)
    for number in (1, 2, 3, 4):
        log.part(number).write_text(f"part {number}")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("streambank.driver.log._copy", full)
        for _ in range(5):
            with pytest.raises(StorageError, match="No space left on device"):
                log.rotate_if_needed()
    assert [log.part(number).exists() for number in (0, 1, 2, 3, 4)] == [False, True, True, True, False]
    assert [log.part(number).read_text() for number in (1, 2, 3)] == ["part 1", "part 2", "part 3"]
    assert log.rotate_if_needed()
    assert "part 1" in [log.part(number).read_text() for number in (2, 3, 4)]


def test_a_log_that_cannot_be_rotated_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RotatedLog(tmp_path / "driver.log", max_bytes=10, files=2)
    log.path.write_text("x" * 100)
    (tmp_path / "driver.log.1").mkdir()
    (tmp_path / "driver.log.2").mkdir()
    (tmp_path / "driver.log.2" / "full").write_text("")
    with refuses(StorageError, "log-not-rotated"):
        log.rotate_if_needed()
    assert log.path.stat().st_size == 100 and os.access(log.path, os.W_OK)
