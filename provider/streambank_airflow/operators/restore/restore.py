"""The operator that restores a savepoint: of one query of a job, or of all of them as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from streambank.core.choices import SINK_CHOICES, SOURCE_CHOICES
from streambank.core.errors import InputError, StreambankError, check_choice
from streambank.core.options import as_bool, as_data
from streambank.core.verb_options import RestoreOptions
from streambank.recovery.approval import (
    Choice,
    check_savepoints,
    check_still_so,
    choices_of,
    chosen_of,
    subject_of,
)
from streambank_airflow.arguments import OneOf, RestoreArguments, Templated, argument
from streambank_airflow.choices import (
    ALL_QUERIES,
    IfRunning,
    check_form_origin,
    check_form_places,
    new_sink_choices,
    sink_choices,
)
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_words
from streambank_airflow.operators.approve import CHOICES_KEY, PLAN_KEY, SUBJECT_KEY
from streambank_airflow.operators.base import (
    SparkWork,
    flat,
    left_stopped,
    measured,
    tried_by,
)
from streambank_airflow.operators.on_savepoint import OnSavepoint
from streambank_airflow.restore_plans import plan_markdown

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.recovery.together import TogetherPlan
    from streambank_airflow.hooks.recovery import JobRestore


RESTORED_BEFORE = "An earlier try of this task has restored it already: nothing is done now."


class RestoreSavepointOperator(OnSavepoint, SparkWork, RestoreArguments):
    """Restores a savepoint into the next generation of its job, or into an empty directory.

    Another try of the task gives what an earlier one has restored, and changes nothing. One that a person
    clears restores into a further generation; for a directory it gives what is there, where that is from the
    savepoint that is asked for, since nothing is restored over a checkpoint.

    With `JOB/*` as its job it restores all queries of the job as one, to savepoints that belong together: of
    `latest-good` the newest moment that all of them reach. A restore that ends in between leaves a job that
    does not start; the same restore again, such as a retry, restores those that are left. Its approval is of
    the whole set. That works for the next generation alone, not for a directory, a fork or new outputs.

    Args:
        savepoint: Its id, the beginning of one, its name, `latest`, a batch (`batch:41`), a time (`03:00`:
            the newest from then or before, in the zone of the job), or `latest-good`: the newest that
            verifies.
        sink_of: A mapping, or a list of `SINK=CHOICE`, by the paths that a plan shows.
        new_sinks: A mapping from old to new, or a list of `OLD=NEW`. The application has to write there from
            its next start on.
        plan_only: The result says what would be done, and XCom `plan_markdown` shows it to
            people.
        unmoved: Refuse where the query has gone on since the savepoint, or has begun a batch.
        if_running: What a plan says about a job that is alive: `refuse`, or `stop` where the caller will stop
            it.
        from_form: `repository`, `into` and `new_sinks` come from a form: only a repository that the job
            declares, and what its table `restore` allows (`into`, `new_outputs`) is taken; beside the
            checkpoint, or the old output, where it says nothing.
        offer: A plan does not fail for what a choice resolves: a job that lives, sinks that are ahead, input
            that is gone. XCom `choices` has what `ApprovePlanOperator` then offers.
        approved: What a person chose there, instead of `sink` and `source`. It is done as long as nothing
            else speaks against the restore than what they saw.
        shown: The generations that the plan was of (its XCom `planned_generations`): where another one counts
            since, nothing is done (`approval-outdated`).
        skipped: `skipped` of the plan that chose the savepoint: the report then says which newer ones were
            passed over, and why.

    Returns:
        Flat: `savepoint`, `job`, `batch`, `taken_at`, `age_s`, `files`, `bytes`, `rows`, `location`,
            `generation`, `sink_effect` (what became of output that is newer than the savepoint), ...,
            `already_restored` (by an earlier try of this task, so that nothing was done), and the list
            `skipped` (`savepoint` and `why` of newer ones that were passed over). Of all queries `job`,
            `skew_s` (seconds between the oldest and the newest savepoint), `queries` (the same of each),
            `already_restored` (their names), and `savepoint` and `skipped` by query.
    """

    operation = "restore"

    # Of all queries the id of each, by its name.
    savepoint: Templated[str | Mapping[str, str]] = argument("latest-good")  # type: ignore[assignment]  # a wider type
    sink_of: Templated[Any] = argument(None)
    new_sinks: Templated[Any] = argument(None)
    plan_only: Templated[bool] = argument(False)
    unmoved: Templated[bool] = argument(False)
    only_if: Templated[bool] = argument(True)
    if_running: OneOf[IfRunning] = argument("refuse")
    from_form: bool = False
    offer: bool = False
    approved: Templated[Mapping[str, Any] | str | None] = argument(None)
    shown: Templated[Mapping[str, int] | str | None] = argument(None)
    skipped: Templated[Sequence[Mapping[str, Any]] | Mapping[str, Any] | str | None] = argument(None)
    all_queries = False  # annotated, it would be an argument
    """Whether `job` names them."""

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Plan it, and unless only a plan is wanted do it; see the class."""
        with airflow_failures():
            if not self.only_if:
                raise AirflowSkipException("Nothing is restored by this task in this run.")
            self._take_job()
            if self.from_form:
                job, query = self.hook.declared.find(self.job)
                jobs = self.hook.declared.read().jobs.values()
                check_form_places(job, query, self.into, new_sink_choices(self.new_sinks), jobs)
                check_form_origin(job, self.repository)
            if self.plan_only:
                self.leave_generations(context)  # before it looks at anything
                return self._show(context, self._plan(offer=self.offer))
            try:
                done = self._restore(context)
            except StreambankError as error:
                error.hint = f"{error.hint} {self.aftermath()}".strip()
                raise
        self.did("restored", *done["queries"].values())
        for report in done["queries"].values():
            self._say(report)
        return self._flat(done)

    def _take_job(self) -> None:
        """Tell all queries of a job from one.

        Raises:
            InputError: All of them are asked for where that does not go (code `bad-option`).
        """
        ref = str(self.job)
        self.all_queries = ref.endswith(f"/{ALL_QUERIES}")
        self.job = ref.removesuffix(f"/{ALL_QUERIES}")
        if self.all_queries and (self.into or self.mode != "no-claim" or new_sink_choices(self.new_sinks)):
            raise InputError(
                f"All queries of {self.job} are restored into the next generation of each, and into nothing "
                "else.",
                code="bad-option",
                hint="Name one query to restore into a directory, as a fork, with a claim or to new outputs.",
            )

    def _restore(self, context: Context) -> dict[str, Any]:
        by = tried_by(context)
        before = self.hook.recovery.restored_before(self.job, self._options(), by=by)
        if before is not None:
            self.log.info("%s", RESTORED_BEFORE)
            return before.to_dict()
        if not self.into:  # beside the job it does not matter in which generation that is
            self.check_shown(context, self.shown)
        approved = chosen_of(as_data(self.approved))
        if approved is not None:
            self._check_still_so(approved)
            self.sink = check_choice(approved.sink, "sink", SINK_CHOICES)
            self.source = check_choice(approved.source, "source", SOURCE_CHOICES)
            self.sink_of = {**sink_choices(self.sink_of), **approved.sink_of}
        how = {**vars(self._options()), "note": self.why, "by": by}
        return self.hook.recovery.restore(self.job, **how).to_dict()

    def _say(self, report: Mapping[str, Any]) -> None:
        self.log.info("Batch %(batch)s of savepoint %(savepoint)s is now in %(location)s.", report)
        if report["mode"] == "fork":
            self.log.info("To run it, declare another job with that directory as its checkpoint.")
        for said in (report["sink_effect"], report["source_effect"]):
            if said:
                self.log.info("%s", said)
        for skipped in report["skipped"]:
            self.log.warning("Savepoint %(savepoint)s was passed over: %(why)s", skipped)
        for warning in report["warnings"]:
            self.log.warning("%s", in_words(warning))

    def _flat(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """A plan or report for an XCom: of all queries what is of all, and each query's own."""
        restored = result["already_restored"]
        queries = {name: {**flat(one), "skipped": one["skipped"]} for name, one in result["queries"].items()}
        if not self.all_queries:
            (only,) = queries.values()
            return only if "seconds" not in result else {**only, "already_restored": bool(restored)}
        return {
            **flat(result),
            "savepoint": {name: one["savepoint"] for name, one in queries.items()},
            "skipped": {name: one["skipped"] for name, one in queries.items()},
            "queries": queries,
            "already_restored": restored,
        }

    def aftermath(self) -> str:
        """What a failure has left behind, for its message and its alert: a job that stands still.

        Returns:
            Empty where the job is not stopped, or is not restored in place; and where a restore of an
            exchange fails (`unmoved`), which starts the job again.
        """
        # It may have failed before its arguments were read.
        if self.into or as_bool(self.plan_only, "plan_only") or as_bool(self.unmoved, "unmoved"):
            return ""
        return left_stopped(self.hook, self.job)

    def _may_stop(self) -> bool:
        return bool(self.if_running == "stop")

    def _options(self) -> JobRestore:
        from streambank_airflow.hooks.recovery import JobRestore

        savepoint, skipped = as_data(self.savepoint), as_data(self.skipped)
        options = self.values_of(RestoreOptions) | {
            "savepoint": dict(savepoint)
            if self.all_queries and isinstance(savepoint, Mapping)
            else str(self.savepoint),
            "sink_of": sink_choices(self.sink_of),
            "new_sinks": new_sink_choices(self.new_sinks),
        }
        return JobRestore(
            **options,
            all_queries=self.all_queries,
            unmoved=self.unmoved,
            executor=self.machines,
            skipped=skipped if isinstance(skipped, (list, tuple, Mapping)) else (),
        )

    def _plan(self, *, offer: bool, whole: bool = True) -> TogetherPlan:
        may_stop = offer or self._may_stop()
        asked = vars(self._options())
        return self.hook.recovery.plan(self.job, may_stop=may_stop, offer=offer, whole=whole, **asked)

    def _check_still_so(self, approved: Choice) -> None:
        """Make sure that nothing else speaks against the restore than what a person has seen.

        Raises:
            RefusedError: Something does (code `approval-outdated`).
        """
        if self.all_queries:
            check_savepoints(approved, self._options().savepoint)
        accepts = approved.missing or any(approved.resolves_by_query.values())
        if approved.stop and approved.newest_by_query and not accepts:
            return
        # The job stands, and the restore reads it all.
        check_still_so(approved, self._plan(offer=True, whole=False))

    def _show(self, context: Context, plan: TogetherPlan) -> dict[str, Any]:
        """Leave a plan, and what is asked about it, for the approval."""
        offered = choices_of(plan, may_stop=self._may_stop()) if self.offer else None
        self._retry_what_may_pass(plan, context["ti"])
        shown = plan_markdown(plan, offered)
        self.log.info("The plan:\n%s", shown)
        self.leave(context, {PLAN_KEY: shown})
        if offered is not None:
            choices = [one.to_dict() for one in offered]
            self.leave(context, {SUBJECT_KEY: subject_of(plan, offered), CHOICES_KEY: choices})
        return self._flat(plan.to_dict())

    def _retry_what_may_pass(self, restore: TogetherPlan, task_instance: Any) -> None:
        """A cluster that is away for a moment needs no choice: ask again while there are tries left."""
        if task_instance.try_number > task_instance.max_tries:
            return
        for plan in restore.plans.values():
            for refusal in (*plan.sink_refusals[plan.sink], *plan.source_refusals[plan.source]):
                if refusal.retryable:
                    raise refusal
