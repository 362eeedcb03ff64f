"""Launchers that other packages register by the entry-point group `streambank.launchers`.

    [project.entry-points."streambank.launchers"]
    emr = "mypkg.emr:EmrLauncher"

An entry point is a class, or a function, that takes a job's `LaunchPolicy` and returns a `Launcher`. A job
names it as `launch.on`; it is loaded when something of that job's driver is to be done, and only because its
declaration names it: a record of a launch holds the name too, and nothing is loaded for that.

What such a launcher raises or answers is somebody else's code. It is checked here, so that a mistake in it is
an error, and never looks like a driver that is gone.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from streambank.control.control import JobControl
from streambank.core.errors import InputError, StorageError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import PLACES, LaunchPolicy
from streambank.driver.launcher import DriverState, Handle, Launcher
from streambank.driver.spec import LaunchSpec

GROUP = "streambank.launchers"
METHODS = ("log_path", "check", "submit", "find", "status", "log_lines", "kill")
"""What a launcher must have."""


def registered() -> dict[str, tuple[EntryPoint, ...]]:
    """What the installed packages register, by name, in the order of their names. Loads none of them.

    A name that two of them register has two entries; one of Streambank's own places is never taken from here.
    """
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        # A package may be on the path twice, as an editable installation is at times: it is one all the same.
        found.setdefault(entry.name, {}).setdefault((_package(entry), entry.value), entry)
    return {name: tuple(found[name].values()) for name in sorted(found)}


def registered_launcher(policy: LaunchPolicy) -> Launcher:
    """The launcher that a job's declaration names.

    Raises:
        InputError: No installed package registers it (code `no-such-launcher`), two do
            (`ambiguous-launcher`), or it does not load or is no launcher (`bad-launcher`).
    """
    return CheckedLauncher(policy.on, _made(policy.on, load(policy.on), policy))


def load(name: str) -> Callable[[LaunchPolicy], object]:
    """What a name stands for, imported."""
    known = registered()
    entries = known.get(name, ())
    if not entries:
        names = [*PLACES, *(one for one in known if one not in PLACES)]
        near = difflib.get_close_matches(name, names, 1)
        raise InputError(
            f"No installed package registers a launcher {name!r}: whether a driver runs there is not known.",
            code="no-such-launcher",
            hint=(f"Did you mean {near[0]}? " if near else "")
            + f"Install the package that registers it. Known here: {', '.join(names)}.",
        )
    if len(entries) > 1:
        where = " and ".join(f"{_package(entry)} ({entry.value})" for entry in entries)
        raise InputError(
            f"Several installed packages register a launcher {name!r}: {where}.",
            code="ambiguous-launcher",
            hint="Uninstall all of them but one.",
        )
    (entry,) = entries
    try:
        made = entry.load()
    except Exception as error:
        raise _bad(name, f"{entry.value} of {_package(entry)} does not load: {_said(error)}") from error
    if not callable(made):
        raise _bad(name, f"{entry.value} of {_package(entry)} is neither a class nor a function")
    return made  # type: ignore[no-any-return]


def _made(name: str, factory: Callable[[LaunchPolicy], object], policy: LaunchPolicy) -> Launcher:
    try:
        launcher = factory(policy)
    except StreambankError:
        raise
    except Exception as error:
        raise _bad(name, f"it cannot be made from the job's launch policy: {_said(error)}") from error
    missing = [method for method in METHODS if not callable(getattr(launcher, method, None))]
    if missing:
        raise _bad(name, f"it has no {', '.join(missing)}")
    return launcher  # type: ignore[return-value]


def _bad(name: str, why: str) -> InputError:
    return InputError(
        f"The launcher {name!r} cannot be used: {why}.",
        code="bad-launcher",
        hint="Repair or replace the package that registers it.",
    )


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown package"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".: ")


class CheckedLauncher:
    """A registered launcher, of which only what the protocol allows comes back."""

    def __init__(self, name: str, launcher: Launcher) -> None:
        self.name = name
        self.launcher = launcher

    def log_path(self, control: JobControl, launch_id: str) -> str | None:
        found: str | None = self._answer("log_path", (str, type(None)), control, launch_id)
        return found

    def check(self, job: Job) -> str | None:
        version: str | None = self._answer("check", (str, type(None)), job)
        return version

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """See `Launcher.submit`. What is not one of our errors says nothing about whether a driver comes."""
        try:
            handle = self.launcher.submit(job, control, spec)
            self._check_handle("submit", handle)
            if handle.launch_id != spec.launch_id:
                raise self._wrong("submit", f"a driver of {handle.launch_id!r}, not of {spec.launch_id}")
        except StreambankError as error:
            if error.code != "launcher-failed":
                raise
            raise self._unanswered(job, error.message.rstrip(".")) from error
        except Exception as error:
            raise self._unanswered(job, _said(error)) from error
        return handle

    def find(self, control: JobControl) -> list[Handle]:
        found = list(self._answer("find", (list, tuple), control))
        for handle in found:
            self._check_handle("find", handle)
        return found

    def status(self, handle: Handle) -> DriverState:
        state: DriverState = self._answer("status", (DriverState,), handle)
        if state.state not in ("running", "ended"):
            raise self._wrong("status", f"{state.state!r}, and a driver is running or ended")
        return state

    def log_lines(self, handle: Handle, count: int) -> list[str]:
        return [str(line) for line in self._answer("log_lines", (list, tuple), handle, count)]

    def kill(self, handle: Handle) -> None:
        self._answer("kill", (object,), handle)

    def _answer(self, method: str, kinds: tuple[type, ...], *asked: object) -> Any:
        """What a method of the launcher answers, which has to be of one of some kinds."""
        try:
            found = getattr(self.launcher, method)(*asked)
        except StreambankError:
            raise
        except Exception as error:
            raise self._failed(f"{method} raised {_said(error)}") from error
        if not isinstance(found, kinds):
            raise self._wrong(method, f"a {type(found).__name__}")
        return found

    def _check_handle(self, method: str, handle: object) -> None:
        if not isinstance(handle, Handle):
            raise self._wrong(method, f"a {type(handle).__name__} instead of a Handle")
        if not isinstance(handle.submission, str) or not handle.submission:
            raise self._wrong(method, f"a driver of {handle.launch_id!r} without a submission")

    def _wrong(self, method: str, what: str) -> StorageError:
        return self._failed(f"{method} answered {what}")

    def _failed(self, what: str) -> StorageError:
        return StorageError(
            f"The launcher {self.name!r} failed, so whether a driver runs is not known: {what}.",
            code="launcher-failed",
            hint="Look at the place where it runs drivers, and report this to who wrote it.",
        )

    def _unanswered(self, job: Job, why: str) -> StorageError:
        return StorageError(
            f"It is not known whether the launcher {self.name!r} has submitted the driver of job {job.name}: "
            f"{why}.",
            code="submit-unanswered",
            hint="Start the job again: it finds the driver, or launches another one, and the lease decides.",
        )


def broken() -> Mapping[str, str]:
    """Why registered launchers cannot be used, by name: each is imported, and none is made."""
    found: dict[str, str] = {}
    for name in registered():
        if name in PLACES:
            found[name] = (
                f"The name {name!r} is one of Streambank's own, so the registered one is never used."
            )
            continue
        try:
            load(name)
        except InputError as error:
            found[name] = error.message
    return found
