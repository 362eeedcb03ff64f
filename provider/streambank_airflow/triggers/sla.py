"""The wait for a job's SLA to be kept or broken, and the asset watcher that tells when that changes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from streambank.core.choices import SEVERITIES
from streambank.core.errors import check_choice
from streambank.sla.alerts import OpenAlerts, news, read_told
from streambank.sla.assess import Assessment
from streambank_airflow.airflow_versions import asset_state_store
from streambank_airflow.choices import check_objectives
from streambank_airflow.notify.cursor import Memory
from streambank_airflow.notify.notify import event_of, level_of
from streambank_airflow.triggers.base import Event, SensorTrigger
from streambank_airflow.triggers.events import TellingTrigger
from streambank_airflow.watch.sla import SKEWS, ObjectivesState, SlaLooks, SlaView, SlaWatcher, standing

if TYPE_CHECKING:
    from streambank_airflow.hooks.streambank import StreambankHook
    from streambank_airflow.triggers.base import LooksAtJob
    from streambank_airflow.watch.job import JobView

UNTIL = ("kept", "broken")
LOOK_EVERY_S = 60.0
"""How often an SLA is looked at: that costs more than a look at a job's state."""


class SlaTrigger(SensorTrigger):
    """Waits until the SLA of a job is kept, or until it is broken.

    Ends with `done`; with `never` where an objective is named that is not judged; with `failed` where the job
    is in a state in which this will not come.

    Args:
        least: From which level on an objective is broken.
        objectives: Those that count; empty for all.
        checkpoint: The directory of a query that is not declared.
    """

    poll_interval_s: float = LOOK_EVERY_S
    until: str = "kept"
    least: str = "breach"
    objectives: Sequence[str] = ()
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.until, "until", UNTIL)
        check_choice(self.least, "least", SEVERITIES)
        self.objectives = check_objectives(self.objectives)

    def open_watcher(self, hook: StreambankHook) -> LooksAtJob:
        skew = not self.objectives or bool(SKEWS & set(self.objectives))
        return SlaWatcher.of(lambda: hook.slas.find(self.job, self.checkpoint), skew=skew)

    def _standing(self, view: JobView) -> ObjectivesState:
        verdicts = view.verdicts if isinstance(view, SlaView) else ()
        return standing(verdicts, self.objectives, level_of(self.least))

    @property
    def awaits(self) -> str:
        return f"the SLA of job {self.job} to be {self.until}"

    def progress(self, view: JobView) -> Hashable:
        found = self._standing(view)
        return found.state, tuple(one.objective for one in found.broken)

    def words(self, view: JobView) -> str:
        found = self._standing(view)
        broken = "; ".join(f"{one.objective}: {one.why}" for one in found.broken[:3])
        return f"{view.words} Its SLA is {found.state}{f' ({broken})' if broken else ''}."

    def outcome(self, view: JobView) -> str | None:
        found = self._standing(view)
        if found.state == self.until:
            return "done"
        return "never" if found.never is not None else self.failed(view)

    def said(self, view: JobView) -> Event:
        found = self._standing(view)
        return {
            **view.to_dict(),
            "sla": found.state,
            "level": found.level,
            "broken": ", ".join(dict.fromkeys(one.objective for one in found.broken)),
            "sla_why": found.broken[0].why if found.broken else "",
            "objective": found.never,
        }


class SlaEventTrigger(TellingTrigger[Assessment, OpenAlerts]):
    """Tells that an objective broke, became worse (a warning that is a breach now), or has healed.

    Args:
        least: From which level on it is told.
    """

    poll_interval_s: float = LOOK_EVERY_S
    least: str = "breach"
    apart: ClassVar[tuple[str, ...]] = ("least",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.least, "least", SEVERITIES)

    def open_watcher(self, hook: StreambankHook) -> SlaLooks:
        return SlaLooks(lambda: hook.slas.find(self.job, self.checkpoint))

    def open_memory(self) -> Memory[OpenAlerts]:
        return SlaMemory(asset_state_store(self), self.memory_key)

    def find_news(
        self, seen: Assessment, told: OpenAlerts | None
    ) -> tuple[list[dict[str, Any]], OpenAlerts | None]:
        found, after = news(seen.verdicts, told or OpenAlerts(), least=level_of(self.least))
        return [event_of(one) for one in found], after


class SlaMemory(Memory[OpenAlerts]):
    """What has been told and has not healed."""

    def read(self, value: Any) -> OpenAlerts:
        return read_told(value)

    def write(self, told: OpenAlerts) -> dict[str, Any]:
        return told.to_dict()
