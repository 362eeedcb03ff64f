"""The operator that judges SLAs: of one job, of several, of all that are declared, or of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import BaseNotifier, BaseOperator

from streambank.control.watch import LATE_S
from streambank.core.choices import Severity
from streambank.core.errors import InputError, StreambankError, check_choice
from streambank.core.units import to_json_time, utc_now
from streambank_airflow.arguments import OfJob, OneOf, SlaArguments, Templated, argument
from streambank_airflow.failures import airflow_failures, said
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import RESULT_KEY, Declaration, FindsJobs, alert_of_failure

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.sla.ages import Ages
    from streambank.sla.assess import Assessment
    from streambank_airflow.notify.notify import Teller, Telling
    from streambank_airflow.notify.stats import Gauges
    from streambank_airflow.watch.sla import SlaSubject

ALL = "all"
AT_ONCE = 8
"""How many jobs are judged at once: they wait for their storage most of the time."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one job: an assessment, or an error that kept it from being judged.

    `ages` are read only where metrics are on.
    """

    ref: str
    subject: SlaSubject | None
    found: Assessment | None
    error: Exception | None = None
    ages: Ages | None = None


class CheckSlaOperator(FindsJobs, BaseOperator, SlaArguments):
    """Judges what jobs promise, tells what is news, sends metrics, and says what it found.

    One job that cannot be judged, or one notifier that fails, hides nothing of the others: the task goes
    through all of them, leaves its result, and fails at the end; for a breach it is not tried again.

    Args:
        job: The declared job, or `job/query`; the name of a query that `checkpoint` leads to.
        jobs: Several of them instead, or `all` that the jobs file declares.
        checkpoint: The directory of a query that no jobs file declares.
        notifiers: Who is told: notifiers of Airflow, instead of those that each job declares; an empty list
            for nobody.
        least: From which level on these are told.

    Returns:
        `job` (of one), `jobs` (their number), `level` (the worst; muted objectives do not count), `breaches`,
            `warnings`, `unknown`, `muted` (numbers of verdicts), `not_judged` (of jobs), `told`, `not_told`
            (of news), `failed_notifiers`, `worst` (a sentence, or None), `levels` (by job), and `verdicts`:
            all of one job; of several those that are broken or warn.
    """

    at_failure = (alert_of_failure,)

    job: OfJob[str | None] = argument(None)
    jobs: Templated[Sequence[str] | str | None] = argument(None)
    checkpoint: Templated[str | None] = argument(None)
    jobs_file: Templated[str | PathLike[str] | None] = argument(None)
    declaration: OfJob[Declaration | None] = argument(None)
    streambank_conn_id: Templated[str] = argument(DEFAULT_CONN_ID)
    notifiers: Sequence[BaseNotifier] | None = None
    least: OneOf[Severity] = argument("warn")

    def after_init(self) -> None:
        if (self.job is None) == (self.jobs is None) or (self.checkpoint is not None and self.job is None):
            raise InputError(
                "Give either job (with or without checkpoint) or jobs.",
                code="bad-option",
                hint='One job: job="flights"; several: jobs=["flights", "trains"] or jobs="all".',
            )

    def execute(self, context: Context) -> dict[str, Any]:
        """Judge; see the class.

        Raises:
            AirflowFailException: Something is broken (`on_breach="fail"`), or has to be repaired.
            AirflowException: Somebody could not be told, or a job could not be judged, and a retry may help.
        """
        with airflow_failures():
            subjects = self._subjects()
        self._note_watchers(context, subjects)
        gauges = self._gauges()
        checked = self._judge(subjects, self.skew, ages=gauges is not None)
        self._log(checked)
        # What was found is left before anybody is told, and before the task fails, which returns nothing.
        self.leave(context, {RESULT_KEY: result_of(checked, (), alone=self.jobs is None)})
        if gauges is not None:
            self._send_metrics(gauges, checked)
        if self.tell and self.notifiers is None:
            self._alert_of_unwatched(context, checked)
        told = self._tell(checked, context) if self.tell else []
        result = result_of(checked, told, alone=self.jobs is None)
        self.leave(context, {RESULT_KEY: result})
        self._fail_where_due(result, checked, told)
        return result

    def _subjects(self) -> dict[str, SlaSubject | StreambankError]:
        if self.jobs is None:
            return {str(self.job): self.hook.slas.find(str(self.job), self.checkpoint)}
        if isinstance(self.jobs, str):
            check_choice(self.jobs, "jobs, unless it is a list,", (ALL,))
            return self.hook.slas.find_all(None)
        return self.hook.slas.find_all([str(one) for one in self.jobs])

    def _note_watchers(self, context: Context, subjects: Mapping[str, SlaSubject | StreambankError]) -> None:
        """Ask Airflow whether those who watch the jobs can act, which no other place can tell."""
        from streambank_airflow.watch.paused import note_watchers

        note_watchers(context, [one for one in subjects.values() if not isinstance(one, StreambankError)])

    def _alert_of_unwatched(self, context: Context, checked: Sequence[Checked]) -> None:
        """Alert of jobs that nothing would restart: who watched them cannot do so, being gone itself."""
        from streambank_airflow.notify.alerts import NOT_WATCHED, Alert, send_alert

        for one in checked:
            life = None if one.found is None else one.found.life
            if life is None or one.found is None or life.unwatched_since is None:
                continue
            muted = any(each.objective == "alive" and each.mute is not None for each in one.found.verdicts)
            if not muted and life.is_unwatched(utc_now(), LATE_S):
                job = one.found.job
                message = (
                    f"Nothing watches job {job}, so nothing restarts it. {life.unwatched_why} Trigger "
                    f"{job}.run: a running driver is not disturbed, and is watched again."
                )
                alert = Alert((NOT_WATCHED, "giving-up"), message, subject=to_json_time(life.unwatched_since))
                send_alert(self.hook, job, alert, {**context})

    def _gauges(self) -> Gauges | None:
        """Who sends metrics; None where they are off."""
        from streambank_airflow.notify.stats import Gauges

        try:
            gauges = Gauges.of_settings()
        except Exception:
            # As everywhere in Airflow: what becomes of metrics decides nothing.
            self.log.exception("The settings of metrics cannot be read.")
            return None
        return gauges if gauges.on else None

    def _judge(
        self, subjects: dict[str, SlaSubject | StreambankError], skew: bool, *, ages: bool
    ) -> list[Checked]:
        def judge(ref: str, subject: SlaSubject | StreambankError) -> Checked:
            if isinstance(subject, StreambankError):
                return Checked(ref, None, None, subject)
            try:
                found = subject.assess(skew=skew)
            except Exception as error:
                # Whatever it is, the other jobs are judged; it fails the task at the end.
                return Checked(ref, subject, None, error)
            return Checked(ref, subject, found, ages=self._ages(subject) if ages else None)

        with ThreadPoolExecutor(min(AT_ONCE, len(subjects) or 1), "sla") as threads:
            return list(threads.map(judge, subjects.keys(), subjects.values()))

    def _log(self, checked: Sequence[Checked]) -> None:
        from streambank_airflow.notify.notify import sentence

        for one in checked:
            if one.found is None:
                self.log.error("Job %s could not be judged.", one.ref, exc_info=one.error)
                continue
            self.log.info("Job %s: %s, %d verdicts.", one.ref, one.found.level, len(one.found.verdicts))
            for verdict in one.found.verdicts:
                bad = verdict.level in ("warn", "breach")
                say = self.log.warning if bad and verdict.mute is None else self.log.info
                if bad or (verdict.level == "unknown" and self.jobs is None):
                    say("%s", sentence(verdict))
                    for each in verdict.evidence:
                        self.log.info("  %s", each)

    def _ages(self, subject: SlaSubject) -> Ages | None:
        try:
            return subject.ages()
        except Exception:
            self.log.exception("The ages of job %s could not be read.", subject.ref)
            return None

    def _send_metrics(self, gauges: Gauges, checked: Sequence[Checked]) -> None:
        try:
            for one in checked:
                if one.found is not None:
                    gauges.send(one.ref, one.found, one.ages)
                else:
                    # What nobody could look at is not kept.
                    gauges.send_level(one.ref, "breach")
        except Exception:
            self.log.exception("The metrics could not be sent.")

    def _tell(self, checked: Sequence[Checked], context: Context) -> list[Telling]:
        from streambank_airflow.notify.notify import tell_all

        found = [
            (one.subject, one.found, self._tellers(one.subject))
            for one in checked
            if one.subject is not None and one.found is not None
        ]
        told = tell_all(found, {**context})
        for each in told:
            if each.why:
                self.log.error("%s", each.why)
        return told

    def _tellers(self, subject: SlaSubject) -> Sequence[Teller]:
        from streambank_airflow.notify.notify import declared_tellers, given_tellers, level_of

        if self.notifiers is not None:
            return given_tellers(self.notifiers, level_of(self.least))
        return () if subject.job is None else declared_tellers(subject.job)

    def _fail_where_due(
        self, result: dict[str, Any], checked: Sequence[Checked], told: Sequence[Telling]
    ) -> None:
        broken, lines = result["breaches"] > 0, []
        if broken and self.on_breach != "report":
            more = f" (and {result['breaches'] - 1} more, in the log above)" if result["breaches"] > 1 else ""
            lines.append(f"{result['worst']}{more}")
        errors = {one.ref: one.error for one in checked if one.error is not None}
        failed = [one.why for one in told if one.why]
        lines += _shortened(
            [f"Job {ref} could not be judged: {said(error)}" for ref, error in errors.items()]
        )
        lines += _shortened([f"Notifier failed: {why}." for why in failed])
        if errors or failed:
            hopeless = all(
                isinstance(error, StreambankError) and not error.retryable for error in errors.values()
            )
            kind = AirflowFailException if not failed and hopeless else AirflowException
            lines += (
                ["Hint: see to what the notifier lacks; the next check sends what it could not."]
                if failed
                else []
            )
            raise kind(" ".join(lines))
        if broken and self.on_breach == "fail":
            raise AirflowFailException(" ".join(lines))
        if lines:
            self.log.warning("%s", " ".join(lines))


def result_of(checked: Sequence[Checked], told: Sequence[Telling], *, alone: bool) -> dict[str, Any]:
    """What the operator returns; see there."""
    from streambank.sla.verdict import LEVELS
    from streambank_airflow.notify.notify import sentence

    verdicts = [verdict for one in checked if one.found is not None for verdict in one.found.verdicts]
    heard = [one for one in verdicts if one.mute is None]
    bad = sorted(
        (one for one in heard if one.level in ("warn", "breach")), key=lambda one: -LEVELS.index(one.level)
    )
    # What nobody could look at is not kept.
    levels = {one.ref: "breach" if one.found is None else one.found.level for one in checked}
    shown = verdicts if alone else [one for one in verdicts if one.level in ("warn", "breach")]
    return {
        **({"job": checked[0].ref} if alone else {}),
        "jobs": len(checked),
        "level": max(levels.values(), key=LEVELS.index, default="ok"),
        "breaches": sum(one.level == "breach" for one in heard),
        "warnings": sum(one.level == "warn" for one in heard),
        "unknown": sum(one.level == "unknown" for one in heard),
        "muted": len(verdicts) - len(heard),
        "not_judged": sum(one.found is None for one in checked),
        "told": sum(one.told for one in told),
        "not_told": sum(one.missed for one in told),
        "failed_notifiers": sum(bool(one.why) for one in told),
        "worst": sentence(bad[0]) if bad else None,
        "levels": levels,
        "verdicts": [one.to_dict() for one in shown],
    }


def _shortened(said: list[str]) -> list[str]:
    """The first few of many sentences."""
    more = len(said) - _SHOWN
    return said if more <= 0 else [*said[:_SHOWN], f"(And {more} more, in the log above.)"]
