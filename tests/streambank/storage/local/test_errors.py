from __future__ import annotations

import errno

import pytest

from streambank.storage.local.errors import translate, translate_read

PATH = "/data/ck/offsets/3"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, "no-such-file"),
        (errno.EEXIST, "exists"),
        (errno.EACCES, "no-permission"),
        (errno.EPERM, "no-permission"),
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.EFBIG, "disk-full"),
        (errno.EMFILE, "too-many-open-files"),
        (errno.EIO, "io-error"),
        (errno.ELOOP, "storage"),
        (errno.ESTALE, "storage"),
    ],
)
def test_each_word_of_the_system_has_a_code_and_a_hint(number: int, code: str) -> None:
    found = translate(OSError(number, "as the system says"), PATH)
    assert found.code == code and PATH in found.message and found.hint


def test_a_file_that_another_machine_removed_is_gone_for_a_reader() -> None:
    assert translate_read(OSError(errno.ESTALE, ""), PATH).code == "no-such-file"
    assert translate_read(OSError(errno.EIO, ""), PATH).code == "io-error"


def test_an_error_without_a_number_says_what_it_says() -> None:
    found = translate(OSError("no number"), PATH)
    assert (found.code, found.message) == ("storage", f"{PATH} cannot be used: no number.")
