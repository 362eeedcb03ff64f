"""What tests lean on does what they take it to do."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.support.archives import unpack_tar
from tests.support.durations import Processor, table
from tests.support.pairs import by_pairs, pairs_of
from tests.support.storm import Part, Record, report

WRITTEN_S = 1_700_000_000


def packed(folder: Path, name: str, kind: bytes = tarfile.REGTYPE) -> Path:
    file = folder / "packed.tar"
    member = tarfile.TarInfo(name)
    member.mtime, member.type, member.linkname = WRITTEN_S, kind, "elsewhere"
    member.size = 1 if member.isfile() else 0
    with tarfile.open(file, "w") as tar:
        tar.addfile(member, io.BytesIO(b"x"))
    return file


def test_an_archive_is_unpacked_with_the_times_of_its_files(tmp_path: Path) -> None:
    unpack_tar(packed(tmp_path, "inside/file"), tmp_path / "to")
    unpacked = tmp_path / "to" / "inside" / "file"
    assert (unpacked.read_text(), unpacked.stat().st_mtime) == ("x", WRITTEN_S)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../out", tarfile.REGTYPE),
        ("/out", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("pipe", tarfile.FIFOTYPE),
    ],
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    with pytest.raises(ValueError, match="not a file or a folder inside"):
        unpack_tar(packed(tmp_path, name, kind), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_parts_of_the_storm_have_each_file_once_and_take_about_as_long() -> None:
    seconds = {f"test_{number}.py": float(10 + number * 37 % 90) for number in range(40)}
    files = [*seconds, "test_new.py"]
    parts = [Part(number, 4).files(files, seconds) for number in range(1, 5)]
    assert sorted(file for part in parts for file in part) == sorted(files)
    sums = [sum(seconds.get(file, 60.0) for file in part) for part in parts]
    assert max(sums) < 1.1 * min(sums)
    assert Part.parse("1/1").files(files, seconds) == {*files}


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "2", "a/b", "1/0"])
def test_what_is_not_a_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PART=2/4"):
        Part.parse(text)


def test_records_of_parts_show_whether_the_whole_storm_passed(tmp_path: Path) -> None:
    first = Record("abc", changed=False, part="1/2", cells={"a": ("passed", 1.0), "b": ("failed", 2.0)})
    second = Record("abc", changed=False, part="2/2", cells={"c": ("passed", 1.0)})
    text, whole = report("abc", [first, second], "abcd")
    assert not whole and "2 of 4 tests" in text
    assert "failed: b" in text and "did not run: d" in text

    again = Record("abc", changed=False, part="ARGS", cells={"b": ("passed", 1.0), "d": ("passed", 1.0)})
    text, whole = report("abc", [first, second, again], "abcd")
    assert whole and "The whole storm of 4 tests passed on abc." in text
    dirty = Record("abc", changed=True, part="ARGS", cells=again.cells)
    assert not report("abc", [first, second, dirty], "abcd")[1], "control: files differed"
    assert not report("abc", [], [])[1], "control: nothing ran"
    assert first.write(tmp_path) == tmp_path / "abc" / "1of2.json"


def test_the_worst_step_of_a_test_is_its_outcome() -> None:
    record = Record("abc", changed=False, part="1/1")
    for when, outcome in (("setup", "passed"), ("call", "failed"), ("teardown", "passed")):
        record.add(pytest.TestReport("a", ("a", 0, "a"), {}, outcome, None, when, duration=0.5))  # type: ignore[arg-type]
    assert record.cells == {"a": ("failed", 1.5)}


def test_a_choice_by_pairs_has_every_pair_and_few_cells() -> None:
    possible = [
        (query, layout, verb)
        for query in "abcdefgh"
        for layout in "12345"
        for verb in ("compact", "rescale", "repair")
        if (layout, verb) != ("1", "rescale")
    ]
    chosen = by_pairs(possible)
    met = {pair for cell in chosen for pair in pairs_of(cell)}
    assert met == {pair for cell in possible for pair in pairs_of(cell)}
    assert set(chosen) <= set(possible)
    assert len(chosen) < 1.3 * 8 * 5, "no choice has fewer than the two longest properties ask for"
    assert by_pairs(possible) == chosen


def test_a_choice_by_pairs_leaves_out_what_meets_in_other_cells() -> None:
    possible = [(release, query, layout) for release in "xy" for query in "abcdefgh" for layout in "12345"]
    beside = [("z", query, layout) for query in "abcdefgh" for layout in "12345"]
    chosen = by_pairs(possible, beside)
    met = {pair for cell in [*chosen, *beside] for pair in pairs_of(cell)}
    assert met >= {pair for cell in possible for pair in pairs_of(cell)}
    assert len(chosen) == 2 * 8, "each query once on each release"


def test_what_a_test_uses_of_the_processors_is_noted() -> None:
    processor, reports = Processor(), []
    for name, work in (("a.py::busy", 3_000_000), ("a.py::idle", 0), ("b.py::busy", 1_000)):
        sum(range(work))
        report = pytest.TestReport(name, (name, 0, name), {}, "passed", None, "call", duration=1.0)
        processor.note(report)
        reports.append(report)
    assert reports[0].cpu_s > reports[1].cpu_s >= 0
    lines = table(reports).splitlines()
    assert "     2.00 s" in next(line for line in lines if line.endswith("  a.py"))
    assert len([line for line in lines if "::" in line]) == 3
