"""What tests lean on does what they take it to do."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.support.archives import unpack_tar

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
