"""Copies of programs: each launch leaves one among the job's records, so that it can run again.

```
code/<digest in hex>/<name>       the files of a program (program.py)
code/<digest in hex>.json         when the copy was complete; written last
```

A copy is never run where it lies, since others may write there: it is read, its digest is verified, and what
was read is laid into a folder of this user. Old copies go when many others have come.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from streambank.code.code import Code
from streambank.code.program import PY_FILES, Program, digest_of, py_file_name, py_files_of, read_program
from streambank.code.vouched import (
    UNPROVEN,
    check_own,
    check_vouched,
    is_vouched,
    make_own,
    not_laid,
    state_folder,
)
from streambank.control.control import JobControl
from streambank.control.records import encode_json
from streambank.core.errors import NotFoundError, RefusedError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.storage.local.modes import close_directory
from streambank.storage.local.trees import remove_directory
from streambank.storage.names import is_key

MOST_BYTES = 16 * 2**20
"""A larger program is not kept."""
KEPT = 20
"""How many programs are kept besides those that are needed."""
_FOLDER = "code"
_CHANGED = "the copy that was kept is not what it was"


def keep(control: JobControl, program: Program) -> str | None:
    """Keep a program among the job's records; why it is not kept, if so."""
    if program.sizes_bytes > MOST_BYTES:
        return f"it has {program.sizes_bytes:,} bytes, and no more than {MOST_BYTES:,} are kept"
    if not all(map(is_key, program.files)):
        return "a file of it has a name that cannot be kept"
    if program.not_understood:
        named = ", ".join(program.not_understood)
        return f"the Python of this machine does not understand {named}, so what is imported is not known"
    if is_kept(control, program.digest):
        return None
    try:
        contents = {name: path.read_bytes() for name, path in program.files.items()}
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    if digest_of(contents) != program.digest:
        return "it changed while it was read"
    folder = _key(program.digest)
    close_directory(f"{control.store.uri}/{_FOLDER}", 0o770)
    for name, data in contents.items():
        control.store.write(f"{folder}/{name}", data)
    control.store.write(f"{folder}.json", encode_json({"at": to_json_time(utc_now())}))
    return None


def is_kept(control: JobControl, digest: str) -> bool:
    """Whether a copy of a program is among the job's records."""
    return control.store.exists(f"{_key(digest)}.json")


def drop_old(control: JobControl, needed: Collection[str]) -> None:
    """Remove copies of programs, by their digests, that nothing needs, but for the newest."""
    infos = [one for one in control.store.list(_FOLDER) if one.path.count("/") == 1]
    if len(infos) <= KEPT:
        return
    stay = {f"{_key(one)}.json" for one in needed}
    for info in sorted(infos, key=lambda one: one.mtime_ns)[:-KEPT]:
        if info.path in stay:
            continue
        control.store.delete(info.path)  # first, so that nothing takes half of a copy for a whole one
        for file in list(control.store.list(info.path.removesuffix(".json"))):
            control.store.delete(file.path)


def why_not_here(code: Code, job: Job, control: JobControl) -> str | None:
    """Why a code could not be run from this machine; None where it could."""
    if not is_vouched(control, "code", code.to_dict()) and code != Code.declared(job):
        return UNPROVEN
    if code.program is None:
        return "it is not known what was in its program"
    if _is_in_place(code):
        return None
    if job.launch.in_cluster:
        return "its program has changed, and the driver runs in a cluster, which takes no copy of it"
    if not is_kept(control, code.program):
        return "its program has changed, and no copy of it was kept"
    return None


def why_not_runnable(code: Code, job: Job, control: JobControl) -> str | None:
    """The same, where a copy is read and its digest verified."""
    why = why_not_here(code, job, control)
    if why is None and not _is_in_place(code):
        assert code.program is not None, "why_not_here says so otherwise"
        if digest_of(_read(control, code.program)) != code.program:
            return _CHANGED
    return why


def runnable(code: Code, job: Job, control: JobControl) -> Job:
    """The job with a code, whose program is where it always was, or else a copy.

    Raises:
        RefusedError: It cannot be run from this machine (code `code-not-kept`), or only a record names it
            (`code-not-proven`).
    """
    applied = code.applied(job)
    why = why_not_here(code, job, control)
    if why == UNPROVEN:
        check_vouched(control, code)
    if why is not None:
        raise _lost(job, code, why)
    if _is_in_place(code):
        return applied
    assert code.program is not None, "it is in place otherwise"
    contents = _read(control, code.program)
    if digest_of(contents) != code.program:
        raise _lost(job, code, _CHANGED)
    folder = _lay(control, code.program, contents)
    py_files = [str(folder / py_file_name(at, path)) for at, path in enumerate(py_files_of(code.spark))]
    settings = {**code.spark, **({PY_FILES: ",".join(py_files)} if py_files else {})}
    return replace(applied, application=str(folder / Path(code.application).name), spark=settings)


def _is_in_place(code: Code) -> bool:
    there = read_program(code.application, code.spark)
    return there is not None and there.digest == code.program


def _lost(job: Job, code: Code, why: str) -> RefusedError:
    return RefusedError(
        f"Job {job.name} is to run the code of {code.application} that was chosen by an upgrade, and that is "
        f"not there: {why}.",
        code="code-not-kept",
        hint="Bring that application back, or let the next start run what the jobs file declares, without a "
        f"rehearsal: `streambank upgrade {job.name} --declared`.",
    )


def _read(control: JobControl, digest: str) -> Mapping[str, bytes]:
    folder = f"{_key(digest)}/"
    found = {}
    for info in control.store.list(folder.rstrip("/")):
        if info.size_bytes <= MOST_BYTES:
            try:
                found[info.path.removeprefix(folder)] = control.store.read(info.path)
            except NotFoundError:
                continue  # it is being removed: the digest will tell
    return found


def _lay(control: JobControl, digest: str, contents: Mapping[str, bytes]) -> Path:
    """Lay a program into a folder that is this user's own."""
    folder = state_folder(control.name) / _key(digest)
    try:
        if folder.is_dir():
            check_own(folder)
            there = {name: (folder / name).read_bytes() for name in contents if (folder / name).is_file()}
            if digest_of(there) == digest:
                return folder
            remove_directory(folder)
        begun = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
        make_own(begun)
        for name, data in contents.items():
            file = begun / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        if not folder.exists():
            begun.replace(folder)
        else:  # another start was faster
            remove_directory(begun)
        check_own(folder)
    except OSError as error:
        raise not_laid(f"The program of job {control.name}", folder, error) from error
    return folder


def _key(digest: str) -> str:
    return f"{_FOLDER}/{digest.removeprefix('sha256:')}"
