from __future__ import annotations

import errno
import io

import pytest

from streambank.core.errors import InputError, NotFoundError, StorageError
from streambank.storage.fsspec.errors import (
    TranslatedReader,
    missing_package_error,
    not_usable_error,
    translate,
    translated,
)

URI = "gs://bucket/ck/offsets/3"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError(URI), "no-such-file"),
        (IsADirectoryError(URI), "no-such-file"),
        (NotADirectoryError(URI), "no-such-file"),
        (FileExistsError(URI), "exists"),
        (OSError(errno.EACCES, "no"), "no-permission"),
        (PermissionError("no number"), "no-permission"),
        (OSError("no number"), "storage"),
        (RuntimeError("x"), "storage"),
    ],
)
def test_each_kind_of_error_has_its_code(error: Exception, code: str) -> None:
    found = translate(error, URI)
    assert found.code == code and URI in found.message


def test_the_text_of_a_foreign_error_is_not_repeated() -> None:
    with pytest.raises(StorageError) as caught, translated(URI):
        raise RuntimeError("GET https://host/x?sig=hunter2")
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert "RuntimeError" in caught.value.message


def test_errors_of_ours_pass() -> None:
    ours = InputError("no", code="bad-location")
    with pytest.raises(InputError) as caught, translated(URI):
        raise ours
    assert caught.value is ours


class GoneLater(io.BytesIO):
    """Gives some bytes; then its file is gone."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if not data:
            raise FileNotFoundError("deep inside")
        return data


def test_a_file_that_goes_away_while_it_is_read_is_missing() -> None:
    reader = TranslatedReader(GoneLater(b"some bytes"), URI)
    assert reader.read(4) == b"some" and reader.read(6) == b" bytes"
    with pytest.raises(NotFoundError) as caught:
        reader.read(1)
    assert URI in caught.value.message
    assert TranslatedReader(io.BytesIO(b"whole"), URI).readall() == b"whole"


def test_the_hint_says_what_to_install_or_to_set() -> None:
    assert missing_package_error("gs", URI).hint == "pip install gcsfs"
    assert "fsspec" in missing_package_error("other", "other://x").hint
    assert "HADOOP_HOME" in not_usable_error("hdfs", "hdfs://x", ValueError()).hint
    assert "ValueError" in not_usable_error("gs", URI, ValueError()).message
