"""Operators that take and verify savepoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from streambank.core.errors import NotFoundError
from streambank.core.units import say_bytes, say_count, say_duration
from streambank.core.verb_options import ImportOptions, TakeOptions
from streambank.declaration.savepoints import DEFAULT_SHARE
from streambank_airflow.arguments import ImportArguments, OneOf, TakeArguments, Templated, argument
from streambank_airflow.assets import event_extra
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_data, in_words
from streambank_airflow.operators.base import (
    SparkWork,
    StreambankOperator,
    asked_by,
    measured,
    tried_by,
)
from streambank_airflow.operators.on_savepoint import OnSavepoint

if TYPE_CHECKING:
    from airflow.sdk import Context

Level = Literal["none", "quick", "full", "sampled", "deep"]
LOOKED = {"quick": "compared by size", "deep": "read and compared, and all state opened by Spark"}
"""What a verification did with each file, by its level."""
SAMPLE_FIELDS = ("share", "runs", "objects", "bytes", "all_objects", "all_bytes", "seconds")
"""What the result of a sampled verification says about the sample."""


class _MakesSavepoint(OnSavepoint):
    """An operator whose success is an event of the job's savepoint asset."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_savepoint_outlet(sure=True)

    def took(self, context: Context, result: Mapping[str, Any]) -> None:
        """Keep what was made, for the link, lineage and the asset's event, and log its warnings."""
        self.did("took", result)
        self.tell_savepoint(context, event_extra(result))
        for warning in result["warnings"]:
            self.log.warning("%s", in_words(warning))


class CreateSavepointOperator(_MakesSavepoint, SparkWork, TakeArguments):
    """Takes a savepoint of a job, running or not. Its success is an event of the job's savepoint asset.

    Of a declared job the current generation is taken, with the sinks that its driver told of. Without a
    declaration, `checkpoint` names the directory of any Structured Streaming query, and the connection the
    repository.

    Args:
        checkpoint: The directory of a query that no jobs file declares; only of such a one `file_sinks` and
            `kafka` are asked.
        name: Another try of the task ends with the savepoint to which the try before gave the name. A task
            that a person clears takes a savepoint of now, and the name moves to it.
        skip_if_never_started: Skip, instead of failing, while the job was never started.

    Returns:
        `savepoint`, `job`, `name`, `batch`, `files`, `bytes`, `new_bytes`, `seconds`, `replans`,
            `already_there`, `warnings`; of a job with several queries also `mutually_consistent`, which is
            false.
    """

    operation = "take"

    checkpoint: Templated[str | None] = argument(None)
    skip_if_never_started: Templated[bool] = argument(False)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Take it; see the class."""
        with airflow_failures():
            try:
                # Before anything is taken: another try of what fails after it might take another one.
                several = self.checkpoint is None and len(self.hook.declared.job(self.job).queries) > 1
                taken = self.hook.savepoints.take(
                    self.job,
                    checkpoint=self.checkpoint,
                    note=self.why,
                    by=tried_by(context) if self.name else asked_by(context),
                    executor=self.machines,
                    **self.values_of(TakeOptions),
                )
            except NotFoundError as error:
                if error.code == "never-started" and self.skip_if_never_started:
                    raise AirflowSkipException(error.message) from error
                raise
            result = taken.to_dict() | ({"mutually_consistent": False} if several else {})
        self.took(context, result)
        if result["already_there"]:
            self.log.info(
                "Savepoint %(savepoint)s of batch %(batch)d was there already: nothing was written.", result
            )
        else:
            self.log.info(
                "Savepoint %s holds batch %d: %s, %s, of which %s are new, after %s.",
                result["savepoint"],
                result["batch"],
                say_count(result["files"], "file"),
                say_bytes(result["bytes"]),
                say_bytes(result["new_bytes"]),
                say_duration(result["seconds"]),
            )
        return dict(in_data(result))


class ImportSavepointOperator(_MakesSavepoint, ImportArguments):
    """Makes a copy of a checkpoint a savepoint, once it is verified: one by `cp -r`, rsync or a backup.

    A copy of a query that ran is seldom whole at its newest batch: the newest whole one is taken, and the
    result says why newer ones were not. Only reads the copy. Its success is an event of the job's savepoint
    asset.

    Args:
        copy: The copy: a directory, or its URI.

    Returns:
        What CreateSavepointOperator returns, and `source`, `batch_at` (when the batch was planned),
            `passed_over` (newer batches that are not whole: `batch`, `code`, `why`).
    """

    operation = "import"

    copy: Templated[str]

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Import it; see the class."""
        with airflow_failures():
            imported = self.hook.savepoints.import_copy(
                self.job,
                copy=self.copy,
                note=self.why,
                by=asked_by(context),
                **self.values_of(ImportOptions),
            )
            result = imported.to_dict()
        self.took(context, result)
        for one in result["passed_over"]:
            self.log.warning("Batch %d of the copy is not whole: %s", one["batch"], one["why"])
        self.log.info("Savepoint %(savepoint)s holds batch %(batch)d of the copy %(source)s.", result)
        return dict(in_data(result))


class VerifySavepointOperator(OnSavepoint, SparkWork):
    """Verifies a savepoint, or a sample of all that a job has, and leaves a record of that beside each.

    Args:
        savepoint: Its id, the beginning of one, its name, `latest`, `latest-good`, `batch:41` or a time; not
            looked at by a sampled verification.
        level: `quick` (everything there, sizes match), `full` (every byte read and compared), `sampled` (of
            all savepoints of the job: everything there, and the next share of their bytes read and compared),
            `deep` (as full, and where nothing is wrong, Spark opens all state and counts its rows: the one of
            `spark_conn_id`, else that of the job's table `state`, else the job's own), or `none` to skip.
        share: What a sampled verification reads; runs whose shares add up to 100 % have read everything.
        fail_on_findings: Fail the task where something is wrong; without it the result says so.

    Returns:
        `savepoint`, `job`, `ok`, `level`, `findings` (their number), `files`, `bytes`, `seconds`; of a sample
            `savepoints` (how many were looked at), `damaged` (how many of them are), `share`, `runs` (that
            cover everything), `objects`, `all_objects`, `all_bytes` instead of `savepoint` and `files`.
    """

    operation = "verify"

    savepoint: Templated[str] = argument("latest")
    level: OneOf[Level] = argument("quick")
    share: Templated[str] = argument(DEFAULT_SHARE)
    fail_on_findings: Templated[bool] = argument(True)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Verify it; see the class."""
        with airflow_failures():
            if self.level == "none":
                raise AirflowSkipException("Verification is off in this run.")
            if self.level == "sampled":
                result, findings = self._sampled(context)
                damaged = f"Of job {self.job}, {result['damaged']} of {result['savepoints']} savepoints are"
            else:
                result, findings = self._verified(context, self.level)
                damaged = f"Savepoint {result['savepoint']} of job {self.job} is"
                self.did("verified", result)
        for finding in findings:
            self.log.error("%s", finding)
        about = (
            f"Savepoint {result['savepoint']}"
            if "savepoint" in result
            else (f"Sample of {say_count(result['savepoints'], 'savepoint')} of job {self.job}")
        )
        what = "file" if "files" in result else "object"
        looked = say_count(result[f"{what}s"], what)
        self.log.info(
            "%s, level %s: %s after %s; %s, %s %s.",
            about,
            result["level"],
            "nothing is wrong" if not findings else f"findings: {len(findings)}",
            say_duration(result["seconds"]),
            looked,
            say_bytes(result["bytes"]),
            LOOKED.get(result["level"], "read and compared"),
        )
        if findings:
            self._alert(context, damaged, result, findings)
        if findings and self.fail_on_findings:
            raise AirflowFailException(
                f"{damaged} damaged: {findings[0]}"
                + (f" (and {len(findings) - 1} more, in the log above)" if len(findings) > 1 else "")
                + " Hint: repair it from a replica (RepairSavepointsOperator), or take a new one. To "
                "restore, choose another one."
            )
        return result

    def _alert(self, context: Context, damaged: str, result: dict[str, Any], findings: Sequence[str]) -> None:
        from streambank_airflow.notify.alerts import Alert, send_alert

        # Of a sample each finding begins with its savepoint.
        about = [result["savepoint"]] if "savepoint" in result else [one.split(":")[0] for one in findings]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        alert = Alert(
            ("savepoint-damaged",),
            f"{damaged} damaged: {findings[0]}{more} Repair it from a replica, or take a new one.",
            subject=" ".join(sorted(set(about))),
        )
        send_alert(self.hook, self.job, alert, {**context})

    def _verified(self, context: Context, level: Any) -> tuple[dict[str, Any], list[str]]:
        report = self.hook.savepoints.verify(
            self.job,
            str(self.savepoint),
            level=level,
            by=asked_by(context),
            executor=self.machines,
            spark=self.spark,
        )
        wrong = [one for one in report.findings if one.severity != "info"]
        said = [f"{one.file}: {one.cause} {one.effect}" for one in wrong]
        return {**report.to_dict(), "findings": len(said)}, said

    def _sampled(self, context: Context) -> tuple[dict[str, Any], list[str]]:
        report = self.hook.repository.verify(self.job, str(self.share), by=asked_by(context))
        for finding in report.findings:
            # About the record of where runs go on, which is whole again: no savepoint is worse for it.
            self.log.warning("%s: %s %s", finding.file, finding.cause, finding.effect)
        findings = [
            f"{each.savepoint}: {one.file}: {one.cause} {one.effect}"
            for each in report.savepoints
            for one in each.findings
            if one.severity != "info"
        ]
        sample = report.to_dict()
        result = {
            "job": self.job,
            "level": "sampled",
            "ok": not findings,
            "findings": len(findings),
            "savepoints": len(report.savepoints),
            "damaged": sum(not each.restorable for each in report.savepoints),
            **{name: sample[name] for name in SAMPLE_FIELDS},
        }
        return result, findings


class PinSavepointOperator(StreambankOperator):
    """Exempts a savepoint from retention, or lets retention decide about it again.

    Args:
        savepoint: Its id, the beginning of one, its name, `latest`, `latest-good`, a batch (`batch:41`), or a
            time (`03:00`): the newest from then or before, in the zone of the job.
        pinned: False lets retention decide again.

    Returns:
        `job`, `savepoint`, `pinned`.
    """

    savepoint: Templated[str]
    pinned: Templated[bool] = argument(True)

    def execute(self, context: Context) -> dict[str, Any]:
        """Pin or unpin it; see the class."""
        with airflow_failures():
            pinned = self.pinned
            found = self.hook.savepoints.pin(
                self.job, str(self.savepoint), pinned=pinned, note=self.why, by=asked_by(context)
            )
        self.log.info("Savepoint %s is %s.", found, "pinned" if pinned else "no longer pinned")
        return {"job": self.job, "savepoint": found, "pinned": pinned}


class UndeleteSavepointOperator(StreambankOperator):
    """Brings an expired savepoint back into the list, as long as no sweep has found it older than its grace.

    Args:
        savepoint: Its id, or the beginning of one.

    Returns:
        `job`, `savepoint`, `already_listed`.
    """

    savepoint: Templated[str]

    def execute(self, context: Context) -> dict[str, Any]:
        """Bring it back; see the class."""
        with airflow_failures():
            done = self.hook.savepoints.undelete(self.job, str(self.savepoint), by=asked_by(context))
        state = "was listed already" if done.already_listed else "is listed again"
        self.log.info("Savepoint %s %s.", done.savepoint, state)
        return {"job": done.job, "savepoint": done.savepoint, "already_listed": done.already_listed}
