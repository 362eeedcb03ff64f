"""Another user of the machine lays folders of our names, or links, where killed commands have left theirs."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.driver.launchers import submit
from streambank.work.staging import checkpoint_name


def sweep_submissions(folder: Path) -> None:
    submit._sweep()


def sweep_staged_state(folder: Path) -> None:
    staging = importlib.import_module("streambank_spark.state.staging")
    staging._sweep(str(folder), staging._is_our_temporary)


SWEEPS = [
    pytest.param(sweep_submissions, submit._FOLDER, id="spark-submit"),
    pytest.param(sweep_staged_state, "streambank-inspect-", id="state", marks=pytest.mark.slow),
]


def lay(place: Path) -> Path:
    """What a killed command has left, a month ago."""
    (place / checkpoint_name()).mkdir(parents=True)
    (place / "file").write_text("x")
    place.chmod(0o700)
    month_ago = time.time() - 30 * 86_400
    for one in (place / "file", place):
        os.utime(one, (month_ago, month_ago))
    return place


@pytest.mark.parametrize(("sweep", "prefix"), SWEEPS)
def test_only_what_is_this_users_alone_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Callable[[Path], None], prefix: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    own, open_to_others = lay(temporary / f"{prefix}own"), lay(temporary / f"{prefix}open")
    open_to_others.chmod(0o777)
    elsewhere = lay(tmp_path / "elsewhere")
    (temporary / f"{prefix}link").symlink_to(elsewhere)
    me = os.geteuid()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: me + 1)
        sweep(temporary)
    assert own.exists()
    sweep(temporary)
    assert not own.exists() and (open_to_others / "file").exists() and (elsewhere / "file").exists()
