"""The way out of what an upgrade has chosen: what the job declares counts again."""

from __future__ import annotations

from streambank.code.chosen import choose_code
from streambank.code.code import Code
from streambank.driver.connections import placed
from streambank.upgrade.plan import UpgradeRequest
from streambank.upgrade.record import Upgrade, newest_upgrade, remember, upgrading
from streambank.upgrade.undo import OPERATION


def choose_declared(request: UpgradeRequest) -> Upgrade | None:
    """Let each later start run what the job declares, whatever an upgrade has chosen. No driver is needed.

    Nothing is stopped or started, and nothing is rehearsed.

    Returns:
        The upgrade that was interrupted and is given up; None where there was none.

    Raises:
        ConflictError: An upgrade, or another operation, works on the job.
    """
    control, job = request.job.records(), placed(request.job)
    with (
        upgrading(control, request.by),
        control.operation(OPERATION, by=request.by, wait_s=2 * job.stop.force_after_s) as held,
    ):
        last = newest_upgrade(control)
        held.check()
        choose_code(control, Code.declared(job), None, by=request.by, why=request.why)
        control.record_event("declared-code-chosen", by=dict(request.by), why=request.why)
        if last is None or not last.is_unfinished:
            return None
        return remember(
            control, last, state="given-up", error="A person chose what the job declares instead."
        )
