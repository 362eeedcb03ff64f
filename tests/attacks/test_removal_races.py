"""Another directory is laid in the place of one that is being removed: nothing of that other one goes.

The directory is exchanged for a link right before a system call of the removal, for each of its calls.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streambank.core.errors import IntegrityError, NotFoundError, RefusedError, StreambankError
from streambank.storage import open_store
from streambank.work.remove import remove_tree
from tests.support.refuses import refuses
from tests.support.storage.exchanged import exchanged, lay_link

NAMES = ("metadata", "commits/0", "state/0/1.delta", "private/file")


def lay(top: Path) -> Path:
    for name in NAMES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"x")
    return top


def there(top: Path) -> set[str]:
    return {path.relative_to(top).as_posix() for path in top.rglob("*")}


def remove(place: Path) -> None:
    remove_tree(open_store(place), first=("commits", "metadata", "offsets"), check=lambda: None)


def how_many(folder: Path) -> int:
    with exchanged(0, lambda: None) as calls:
        remove(lay(folder / "counted"))
    return len(calls)


@pytest.mark.parametrize("inside", ["", "state", "state/0"])
def test_nothing_of_what_a_link_leads_to_goes(tmp_path: Path, inside: str) -> None:
    victim = lay(tmp_path / "victim")
    whole = there(victim)
    fired, refused = 0, 0
    for at in range(1, how_many(tmp_path) + 1):
        place = lay(tmp_path / f"top{at}")
        target, led_to = (place / inside, victim / inside) if inside else (place, victim)

        def exchange(place: Path = place, target: Path = target, led_to: Path = led_to) -> None:
            nonlocal fired
            fired += lay_link(target, led_to, place.with_name(f"{place.name}-moved"))

        with exchanged(at, exchange):
            try:
                remove(place)
            except StreambankError as error:
                refused += error.code in ("not-a-directory", "symlink-escape")
        assert there(victim) == whole, f"at call {at}"
    assert fired > 5 and refused > 1


def test_a_store_does_not_follow_a_link_that_is_laid_in_its_own_place(tmp_path: Path) -> None:
    place, victim = lay(tmp_path / "top"), lay(tmp_path / "victim")
    store = open_store(place)
    assert store.exists("metadata")
    place.rename(tmp_path / "moved")
    place.symlink_to(victim)
    (victim / "empty/deep").mkdir(parents=True)
    acts: list[Callable[[], None]] = [lambda: store.delete("metadata"), lambda: store.prune("empty")]
    for act in acts:
        with refuses(IntegrityError, "symlink-escape"):
            act()
    assert (victim / "metadata").exists() and (victim / "empty/deep").exists()
    place.unlink()
    lay(place)
    store.delete("metadata")
    assert not (place / "metadata").exists(), "one that was made again is the same place"
    (tmp_path / "link").symlink_to(place)
    open_store(tmp_path / "link").delete("commits/0")
    assert not (place / "commits/0").exists(), "a root that is a link is the choice of who opens it"


def test_another_directory_of_the_same_name_is_not_the_one_that_was_looked_at(tmp_path: Path) -> None:
    from streambank.storage.local.trees import judge

    place, victim = lay(tmp_path / "top"), lay(tmp_path / "victim")
    judged = judge(place)
    place.rename(tmp_path / "moved")
    victim.rename(place)
    with pytest.raises(RefusedError) as caught:
        remove_tree(open_store(place), judged=judged)
    assert caught.value.code == "not-a-directory" and len(there(place)) > len(NAMES)
    remove_tree(open_store(tmp_path / "moved"), judged=judged)
    assert not (tmp_path / "moved").exists(), "by whatever name it has now it is the one"


def test_who_may_go_on_no_more_says_so_whatever_the_reason_is(tmp_path: Path) -> None:
    place, asked = lay(tmp_path / "top"), []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise NotFoundError("The records are gone.", code="no-such-file")

    with pytest.raises(NotFoundError, match="records are gone"):
        remove_tree(open_store(place), first=("commits", "metadata"), check=check)
    assert there(place) == {"state", "state/0", "state/0/1.delta", "private", "private/file"}
    assert remove_tree(open_store(place), check=lambda: None) == (2, 2) and not place.exists()


def test_a_directory_that_vanishes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.work.remove.CHECK_EVERY_S", 0.0)
    checks, fired = 3 + len(NAMES), 0  # before each rank, and each file
    for at in range(checks):
        place, asked = lay(tmp_path / f"top{at}"), itertools.count()

        def check(place: Path = place, asked: Iterator[int] = asked, at: int = at) -> None:
            nonlocal fired
            if next(asked) == at:
                fired += place.exists()
                shutil.rmtree(place)

        remove_tree(open_store(place), first=("commits", "metadata"), check=check)
        assert not place.exists(), f"at check {at}"
    assert fired == checks


def test_where_everybody_may_write_only_what_is_this_users_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    place = lay(shared / "top")
    me = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: me + 1)
        with refuses(RefusedError, "not-this-users"):
            remove(place)
    place.chmod(place.stat().st_mode | stat.S_IWOTH)
    with pytest.raises(RefusedError):
        remove(place)
    place.chmod(0o755)
    assert len(there(place)) > len(NAMES)
    remove(place)
    assert not place.exists()
