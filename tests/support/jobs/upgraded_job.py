"""Upgrades of a job without Spark (managed_job.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streambank.code.code import Code
from streambank.core.errors import StreambankError
from streambank.upgrade.plan import UpgradeRequest, last_code
from streambank.upgrade.record import Upgrade
from streambank.upgrade.upgrade import upgrade
from tests.support.jobs.managed_job import BY, Managed

NEW = "# another program\n"


def deploy(managed: Managed, program: str = NEW) -> None:
    """Replace the program of the job's application."""
    (managed.folder / "app.py").write_text(program, encoding="utf-8")


def request_of(managed: Managed, **asked: Any) -> UpgradeRequest:
    """What is asked: two seconds are enough."""
    return UpgradeRequest(managed.job, **{"watch_s": 1.0, "by": BY, **asked})


def upgraded(managed: Managed, **asked: Any) -> Upgrade:
    return upgrade(request_of(managed, **asked))


def dying(managed: Managed, batches: int = 2) -> tuple[str, ...]:
    """Arguments with which a driver dies after a few batches, and no driver of the old ones does."""
    file = managed.folder / "dies-when-new"
    file.write_text(str(batches), encoding="utf-8")
    return tuple(str(file) if one == str(managed.dies) else one for one in managed.job.args)


def kinds(managed: Managed) -> list[str]:
    return [str(one.data["kind"]) for one in managed.control.events()]


def runs(managed: Managed) -> Code:
    """What the driver that lives was launched with."""
    assert managed.driver_lives()
    code = last_code(managed.control)
    assert code is not None
    return code


def epoch(managed: Managed) -> int:
    view = managed.control.lease.view()
    assert view is not None
    return view.epoch


def generation(managed: Managed) -> int:
    found = managed.control.generation()
    assert found is not None
    return found.number


class Killed(BaseException):
    """Stands for the end of the process: nothing that catches errors catches it."""


def before(step: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*given: Any, **named: Any) -> Any:
        raise Killed

    return killed


def after(step: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*given: Any, **named: Any) -> Any:
        step(*given, **named)
        raise Killed

    return killed


def interrupt(patch: pytest.MonkeyPatch, module: Any, name: str, how: Callable[..., Any]) -> None:
    patch.setattr(module, name, how(getattr(module, name)))


class Fault:
    """An error before, or after, the first call of a step; and whether it came."""

    def __init__(
        self, patch: pytest.MonkeyPatch, module: Any, name: str, error: StreambankError, *, late: bool = False
    ) -> None:
        self.fired = False
        step = getattr(module, name)

        def faulty(*given: Any, **named: Any) -> Any:
            if self.fired:
                return step(*given, **named)
            if late:
                step(*given, **named)
            self.fired = True
            raise error

        patch.setattr(module, name, faulty)
