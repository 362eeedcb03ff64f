"""What this user has run or chosen from this host, which vouches for records where no key signs them.

Who can write among a job's records could name any program there. So a launch of what a job declares, an
upgrade, and a choice leave an empty file in a folder of this user, named by the digest of all that is run:

```
<state folder>/streambank/<job>/vouched/<digest of the place of its records>/code-<digest>
                                                                             choice-<digest>
```

Where there are signing keys, a signature vouches, and none of this is written or asked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.core.errors import RefusedError, StorageError
from streambank.storage import service_name
from streambank.storage.local.trees import is_private

UNPROVEN = "this user has not run or chosen that code from this host, and no key signs the job's records"
"""Why a code that a record names is not run."""
_KEPT = 50
"""So many codes are vouched for; an older one was launched longer ago than all of them."""

Kind = Literal["code", "choice"]
"""A code that was launched or asked for; or the record by which one was chosen."""


def state_folder(job: str) -> Path:
    """Where this user keeps what belongs to a job."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # a user without a home: nothing is there, and nothing can be laid there
        state = Path(os.devnull)
    return state / "streambank" / job


def vouch(control: JobControl, kind: Kind, said: Mapping[str, Any]) -> None:
    """Leave behind that this user runs or chooses something.

    Raises:
        StorageError: It could not be written (code `code-not-laid`).
    """
    if control.signer.keys:
        return
    file = _file(control, kind, said)
    try:
        make_own(file.parent)
        file.touch(mode=0o600)
        check_own(file.parent)
        files = sorted(file.parent.glob("code-*"), key=_mtime_ns)
        for old in files[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise not_laid(f"What vouches for the code of job {control.name}", file, error) from error


def make_own(folder: Path) -> None:
    """Make a folder of this user, and those above it, that nobody else may write, whatever the umask is.

    Raises:
        OSError: It cannot be made.
    """
    for above in reversed(folder.parents):
        if not above.is_dir():
            above.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def check_own(folder: Path) -> None:
    """Make sure that no other user can change or exchange a folder that is two levels below `state_folder`.

    A group may write above it: that is what the umask of many installations gives.

    Raises:
        OSError: One can; or there is no such folder.
    """
    above = folder.parents[:3]  # that of its kind, of the job, and of all jobs
    found = [look for one in above for look in (one.lstat(), one.stat())]  # those who made a link, too
    exposed = any(one.stat().st_mode & stat.S_IWOTH for one in above)
    if exposed or not is_private(folder) or not {one.st_uid for one in found} <= {os.geteuid(), 0}:
        raise PermissionError(errno.EPERM, "another user can exchange what lies there")


def not_laid(what: str, place: Path, error: OSError) -> StorageError:
    """That this user's state folder cannot be written."""
    return StorageError(
        f"{what} could not be laid into {place}: {error.strerror or error}.",
        code="code-not-laid",
        hint="Make room there, or name another folder in XDG_STATE_HOME, in which no other user may write.",
    )


def is_vouched(control: JobControl, kind: Kind, said: Mapping[str, Any]) -> bool:
    """Whether this user has run or chosen something; where records are signed, reading them has proven it."""
    if control.signer.keys:
        return True
    file = _file(control, kind, said)
    try:
        check_own(file.parent)
        found = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def forget_choices(control: JobControl, but: Mapping[str, Any]) -> None:
    """Let no earlier choice of this user count again."""
    stays = _file(control, "choice", but)
    for file in stays.parent.glob("choice-*"):
        if file != stays:
            with suppress(OSError):  # it counts only where it is the newest record, too
                file.unlink()


def follow(control: JobControl, moved: JobControl) -> None:
    """Vouch for what a job's records say in another place, to which they were moved. Raises nothing."""
    with suppress(OSError):
        _folder(control).rename(_folder(moved))


def check_vouched(control: JobControl, code: Code) -> None:
    """Make sure that a code was run or asked for by this user.

    Raises:
        RefusedError: It was not (code `code-not-proven`).
    """
    if not is_vouched(control, "code", code.to_dict()):
        raise unproven(control, code)


def unproven(control: JobControl, code: Code) -> RefusedError:
    """That a code which a record names is not run."""
    return RefusedError(
        f"The records of job {control.name} say that an upgrade has chosen the code of {code.application}, "
        f"but {UNPROVEN}.",
        code="code-not-proven",
        hint="If it is right: start the job on the host and as the user of the upgrade; or ask for the same "
        "upgrade from here while its driver runs, as for a choice of before there were proofs; or declare "
        "that code in the jobs file. Signing keys prove it on each host once `streambank job sign-records "
        f"{control.name}` has signed it. Otherwise let the next start run what the jobs file declares, "
        f"without a rehearsal: `streambank upgrade {control.name} --declared`.",
    )


def _file(control: JobControl, kind: Kind, said: Mapping[str, Any]) -> Path:
    return _folder(control) / f"{kind}-{_digest(json.dumps(said, sort_keys=True))}"


def _mtime_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:  # another process has just removed it as an old one
        return 0


def _folder(control: JobControl) -> Path:
    return state_folder(control.name) / "vouched" / _digest(str(service_name(control.store.uri)))[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
