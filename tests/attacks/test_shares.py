"""A share that shows everything as open to everybody, or as another user's: what was made here goes again.

SMB with `dir_mode=0777` and NFS with `all_squash` do. What is only found there stays, and so does what
somebody has laid in the place of what was made.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.drills import left
from streambank.storage import local_path, open_store
from streambank.work.remove import remove_tree
from streambank.work.staging import checkpoint_name
from streambank_spark.state.staging import (
    Staging,
    materialized_checkpoint,
    materialized_savepoint,
    place_beside,
)
from streambank_spark.submit.executor import submit_folder
from tests.support.jobs.declared import declare
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses

Shown = Callable[[Path], None]
Lay = Callable[[Path, list[str]], AbstractContextManager[str]]


@pytest.fixture(params=["0777", "squashed"])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """How the share shows a directory, called once it is made."""
    if request.param == "0777":
        return lambda path: path.chmod(0o777)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    return lambda path: None


@pytest.fixture
def share(tmp_path: Path) -> Path:
    (tmp_path / "share").mkdir()
    (tmp_path / "share").chmod(0o777)
    return tmp_path / "share"


def a_savepoint(share: Path, said: list[str], master: str = "local[1]") -> AbstractContextManager[str]:
    shop = SimulatedJob(share.parent)
    saved = shop.run(2).take().savepoint
    return _at(materialized_savepoint(shop.repository, JOB, saved, Staging(master, str(share), said.append)))


def on_a_cluster(share: Path, said: list[str]) -> AbstractContextManager[str]:
    return a_savepoint(share, said, "spark://master:7077")


def a_checkpoint(share: Path, said: list[str]) -> AbstractContextManager[str]:
    shop = SimulatedJob(share.parent).run(2)
    return _at(
        materialized_checkpoint(shop.checkpoint.uri, None, Staging("local[1]", str(share), said.append))
    )


@contextmanager
def a_place_beside(share: Path, said: list[str]) -> Iterator[str]:
    with place_beside(f"{share}/{checkpoint_name()}", said.append) as target:
        target.write("state/0", b"x")
        yield target.uri


@contextmanager
def _at(laid: AbstractContextManager[object]) -> Iterator[str]:
    with laid as one:
        yield one.location  # type: ignore[attr-defined]  # a Materialized


@pytest.mark.parametrize("lay", [a_savepoint, on_a_cluster, a_checkpoint, a_place_beside])
def test_what_was_laid_out_goes_and_its_end_fails_nothing(share: Path, shown: Shown, lay: Lay) -> None:
    said: list[str] = []
    with lay(share, said):
        assert list(share.iterdir())
        for path in share.iterdir():
            shown(path)
    assert (list(share.iterdir()), said) == ([], [])


def test_what_is_only_found_there_stays(share: Path, shown: Shown) -> None:
    found = share / checkpoint_name()
    found.mkdir()
    (found / "metadata").write_text("x")
    shown(found)
    os.utime(found / "metadata", (time.time() - 30 * 86_400,) * 2)
    with a_savepoint(share, []):
        pass
    assert (found / "metadata").exists()
    with refuses(RefusedError, "not-this-users"):
        remove_tree(open_store(found))


@pytest.mark.parametrize("lay", [a_savepoint, a_place_beside])
def test_what_lies_in_its_place_by_its_end_stays_and_is_named(share: Path, shown: Shown, lay: Lay) -> None:
    said: list[str] = []
    with lay(share, said) as location:
        place = Path(local_path(location) or location)
        place.rename(share / "aside")
        place.mkdir()
        (place / "of-another").write_text("x")
        shown(place)
    assert (place / "of-another").exists()
    (line,) = said
    assert str(place) in line and "another one by now" in line


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return declare(tmp_path)


def test_the_scratch_of_a_drill_goes_and_one_that_is_found_stays(share: Path, shown: Shown, job: Job) -> None:
    scratch = share / "drill"
    made = left.mark(str(scratch), job.records())
    (scratch / "checkpoint").mkdir()
    shown(scratch)
    with pytest.raises(RefusedError) as caught:
        left.remove(str(scratch))
    assert caught.value.code == "not-this-users" and (scratch / left.MARKER).exists()
    left.remove(str(scratch), made)
    assert not scratch.exists()


def test_the_folder_of_a_submission_goes(share: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(share))
    with submit_folder() as folder:
        shown(folder)
    assert not folder.exists()
