"""What the operators and sensors share: which job, found how, and on whose behalf."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, is_dataclass
from functools import cached_property, partial, wraps
from inspect import Parameter, Signature
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, get_origin

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
    conf,
)
from airflow.sdk import BaseOperator

from streambank.control.processes import who
from streambank.core.errors import StreambankError, check_choice
from streambank.core.names import ASKER, MAIN, SEPARATOR
from streambank.core.options import OptionField, Template, as_bool, as_data, options_of
from streambank.core.units import utc_now
from streambank.driver.installed import own_installation
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.failures import airflow_failures, close_log, describe
from streambank_airflow.hints import in_words
from streambank_airflow.hooks.declared import as_plain
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID, StreambankHook
from streambank_airflow.markdown import rows_table

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.declaration.declaration import Job
    from streambank.work.executor import Executor


Options = TypeVar("Options")

REPORT_KEY = "report_markdown"
"""XCom key under which a report is left for people."""
GENERATIONS_KEY = "planned_generations"
"""XCom key under which a plan leaves the generations that it is of."""
RESULT_KEY = "return_value"
"""XCom key of what an operator returns, for one that leaves it there and then fails."""
_ANSWER = re.compile(r"\{\{ *params(?:\.(\w+)|\.get\('([^']+)'\)|\['([^']+)'\])( or '')? *\}\}")
"""A template that is one answer of a form, and nothing else."""


@dataclass_transform(kw_only_default=True)
class FindsJobs:
    """What has a connection and a jobs file, both templates, and finds jobs by them.

    A subclass without an `__init__` takes its annotated fields as arguments, as a dataclass does, and those
    of a dataclass of options (streambank.core.verb_options) that is one of its bases. Options, and what may
    be a `Template`, are template fields: what a run fills in is read by its type before the task works.
    """

    ui_color = "#d6e8ee"
    template_fields: Any = ()
    arguments: ClassVar[Mapping[str, OptionField]] = {}
    """Those of the arguments that are read by their types."""
    usual: ClassVar[Mapping[str, Any]] = {}
    """Arguments of Airflow's own operator, for who leaves them out."""
    job: Any
    jobs_file: str | PathLike[str] | None
    streambank_conn_id: str
    deferrable: bool = False
    poll_interval_s: float = 5.0
    on_failure_callback: Any
    on_retry_callback: Any
    on_success_callback: Any
    page_parts: ClassVar[Collection[str] | None] = None
    """What is kept for the job's page at its end (page/keep.py): these parts, or all that are usual."""
    at_failure: ClassVar[tuple[Callable[[Context], None], ...]] = ()
    """Called where it fails for good: after the user's callbacks, before the page, which takes its time."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = cls.__bases__[::-1]
        own = {} if "__init__" in vars(cls) else _arguments_of(cls)
        if own:
            cls.__init__ = _constructor(cls, own)  # type: ignore[method-assign]
        taken = {name: one for name, one in own.items() if one.is_template or one.option is not None}
        of_bases = [base.arguments for base in bases if issubclass(base, FindsJobs)]
        inherited = {name: one for arguments in of_bases for name, one in arguments.items()}
        cls.arguments = {**inherited, **taken}
        if "template_fields" not in vars(cls):
            of_all = (name for base in bases[::-1] for name in getattr(base, "template_fields", ()))
            fields = dict.fromkeys(of_all)
            cls.template_fields = (*fields, *(name for name in taken if name not in fields))
        if "execute" in vars(cls):
            cls.execute = _reading_first(vars(cls)["execute"])  # type: ignore[attr-defined]

    def read_arguments(self) -> None:
        """Read what templates have made of the arguments, each by its type.

        Raises:
            AirflowFailException: One is not of its type.
        """
        with airflow_failures():
            for name, declared in self.arguments.items():
                setattr(self, name, declared.read(getattr(self, name)))

    def resume_execution(self, *args: Any, **kwargs: Any) -> Any:
        """Go on where the triggerer has waited."""
        self.read_arguments()
        return super().resume_execution(*args, **kwargs)  # type: ignore[misc]  # a mixin

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**self.usual, **kwargs})
        # Not by a listener: of a task that is lost with its worker Airflow calls it in the scheduler, without
        # this operator. Callbacks are called in the DAG processor then, with it.
        page = () if self.page_parts == () else (keep_page,)
        self.on_success_callback = [*self.on_success_callback, *page]
        # The last ones, so that nothing of ours comes after what they log.
        self.on_failure_callback = [*self.on_failure_callback, *self.at_failure, *page, close_log]
        self.on_retry_callback = [*self.on_retry_callback, *page, close_log]

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep a path as its text: Airflow does not render a `Path`, nor hand it to the triggerer."""
        super().__setattr__(name, as_plain(value) if name in self.template_fields else value)

    def render_template(self, content: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        """As for every operator, but an answer of a form stays what it is.

        Native rendering reads each text as a Python value: `1_000` would be 1000, `1e999` infinite, and
        `None` nothing.
        """
        asked = _ANSWER.fullmatch(content) if isinstance(content, str) else None
        name = next(filter(None, asked.groups()), None) if asked is not None else None
        answers = context.get("params") or {}
        if asked is not None and name in answers:
            answer = answers[name]
            return answer or "" if asked[4] else answer
        rendered = super().render_template(content, context, *args, **kwargs)  # type: ignore[misc]  # a mixin
        is_number = isinstance(content, str) and type(rendered) in (int, float)
        return str(rendered) if is_number else rendered  # read by its type, and refused where it needs a unit

    @property
    def trigger_arguments(self) -> dict[str, Any]:
        """What every trigger on a job takes."""
        return {
            "job": self.job,
            "jobs_file": self.jobs_file,
            "streambank_conn_id": self.streambank_conn_id,
            "poll_interval_s": self.poll_interval_s,
        }

    def check_deferrable(self) -> None:
        """Refuse a wait that cannot be handed to the triggerer, before anything is done that it is for.

        Raises:
            InputError: An argument cannot be handed over (code `bad-option`).
        """
        if self.deferrable:
            from streambank_airflow.triggers.base import check_deferrable

            check_deferrable(self.trigger_arguments)

    @cached_property
    def hook(self) -> StreambankHook:
        """The hook; to be used once the templates are rendered."""
        return StreambankHook(self.streambank_conn_id, jobs_file=self.jobs_file)

    def leave(self, context: Context, left: Mapping[str, Any]) -> None:
        """Leave XComs by their keys; of a task that fails after it, too, which returns nothing."""
        task_instance: Any = context["ti"]
        for key, value in left.items():
            task_instance.xcom_push(key=key, value=value)

    def leave_report(
        self, context: Context, rows: Iterable[tuple[str, Any]], left: Mapping[str, Any] | None = None
    ) -> None:
        """Log a report, and leave it for people, with what else is `left`."""
        shown = rows_table(rows)
        self.log.info("The report:\n%s", shown)  # type: ignore[attr-defined]  # a mixin
        self.leave(context, {REPORT_KEY: shown, **(left or {})})

    def in_words(self, text: str) -> str:
        """What the engine says, in the words of Airflow."""
        return in_words(text, str(self.job).partition("/")[0])

    def raise_for_error(self, event: Mapping[str, Any]) -> None:
        """End the task where the wait itself failed.

        Raises:
            AirflowFailException: Something that somebody has to decide or repair.
        """
        if event["status"] == "error":
            kind = AirflowException if event["retryable"] else AirflowFailException
            raise kind(self.in_words(event["message"]))

    def check_shown(self, context: Context, shown: Any) -> None:
        """Make sure that a plan still is of the generations that count; nothing was shown for None.

        Raises:
            RefusedError: It is not (code `approval-outdated`).
        """
        found = as_data(shown)
        if isinstance(found, Mapping):
            self.hook.recovery.check_generations(self.job, found, by=asked_by(context))


def _arguments_of(operator: type[Any]) -> dict[str, OptionField]:
    """The arguments that a class declares itself."""
    bases = [base for base in operator.__bases__ if not issubclass(base, (FindsJobs, BaseOperator))]
    found = {one.name: one for base in bases if is_dataclass(base) for one in options_of(base)}
    module, attributes = vars(sys.modules[operator.__module__]), vars(operator)
    for name, annotation in attributes.get("__annotations__", {}).items():
        if name[0] == "_" or name in BaseOperator.__dataclass_fields__:
            continue
        typed = eval(annotation, module) if isinstance(annotation, str) else annotation
        if get_origin(typed) is not ClassVar:
            default = partial(attributes.__getitem__, name) if name in attributes else None
            found[name] = OptionField.of(name, typed, default)
    return found


def _constructor(operator: type[Any], own: Mapping[str, OptionField]) -> Callable[..., None]:
    """The `__init__` of an operator whose fields are its arguments."""

    def __init__(self: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in own if name in kwargs}
        super(operator, self).__init__(**kwargs)
        for name, one in own.items():
            value = given[name] if name in given or one.default is None else one.default()
            if one.values and not (value is None and one.optional):
                check = known_or_template if name in operator.arguments else check_choice
                value = check(value, name, one.values)
            setattr(self, name, value)
        if "after_init" in vars(operator):
            operator.after_init(self)  # its own: those of its bases are called with their arguments

    needed = Parameter.empty
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=needed if one.default is None else one.default())
        for name, one in own.items()
    ]
    first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    rest = Parameter("kwargs", Parameter.VAR_KEYWORD)
    __init__.__signature__ = Signature([first, *keywords, rest])  # type: ignore[attr-defined]
    return __init__


def _reading_first(execute: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(execute)
    def reading(self: FindsJobs, *args: Any, **kwargs: Any) -> Any:
        self.read_arguments()
        return execute(self, *args, **kwargs)

    return reading


def keep_page(context: Context) -> None:
    """A callback of a task that has ended: the page in Airflow shows its job as it is now."""
    from streambank_airflow.page.keep import keep_after_task

    keep_after_task({**context})


def alert_of_failure(context: Context) -> None:
    """An `on_failure_callback`: whom the job names is alerted, where the failure is one for alerts."""
    from streambank_airflow.notify import alerts

    alerts.alert_of_failure({**context})


class StreambankOperator(FindsJobs, BaseOperator):
    """An operator on one streaming job.

    Where it fails for good, whom the job's `notify` names is alerted (alerts.py).

    Args:
        job: The declared job's name; `job/query` where a query of several is meant; `job@copy` for the job on
            a copy of its state.
        streambank_conn_id: The default one need not exist where `jobs_file` says everything.
        note: Why; kept with the records of what is done.
    """

    # Each field of the result is a separate XCom, so that `take.output["savepoint"]` is what it says.
    usual: ClassVar[Mapping[str, Any]] = {"multiple_outputs": True}
    job: str | Template
    jobs_file: str | PathLike[str] | Template | None = None
    streambank_conn_id: str | Template = DEFAULT_CONN_ID
    note: str | Template | None = None
    if TYPE_CHECKING:  # what Airflow's operator takes, where its fields are typed otherwise
        dag: InitVar[Any] = None
        trigger_rule: InitVar[Any] = None
        on_failure_callback: InitVar[Any] = None
        on_success_callback: InitVar[Any] = None
        on_retry_callback: InitVar[Any] = None
    at_failure = (alert_of_failure,)
    alert_kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of alerts that its failure is, whatever the error."""
    operation: ClassVar[str] = ""
    """What metrics call what it does, where its `execute` is `measured`."""

    @property
    def job_in_dag(self) -> str | None:
        """The job without its query, where the DAG file names it; None where only a run knows it."""
        return None if is_template(self.job) else self.job.partition("/")[0] or None

    @property
    def why(self) -> str:
        """The note as text; empty without one."""
        return "" if self.note is None else str(self.note)

    def whole_job(self, work: str) -> Job:
        """The declared job, for work that is of a whole one.

        Args:
            work: What it is, for the refusal: `An upgrade`.

        Raises:
            InputError: A query is named (code `bad-option`).
            StreambankError: The job is not found.
        """
        return self.hook.declared.whole(self.job, work)

    def values_of(self, options: type[Any]) -> dict[str, Any]:
        """The arguments that a dataclass of options declares, by their names."""
        return {one.name: getattr(self, one.name) for one in options_of(options)}

    def asked(self, options: type[Options]) -> Options:
        """What the arguments say of a dataclass of options."""
        made: Callable[..., Options] = options
        return made(**self.values_of(options))

    def leave_generations(self, context: Context) -> None:
        """Leave the generations that a plan is of, for what is done when a person has approved it."""
        self.leave(context, {GENERATIONS_KEY: self.hook.recovery.shown_generations(self.job)})


R = TypeVar("R")


def measured(execute: Callable[..., R]) -> Callable[..., R]:
    """Let an `execute` send how long its operation took, and how it ended, as metrics (notify/stats.py).

    What is skipped, or only planned (`plan_only`), sends nothing. What waits in the triggerer has not ended:
    the method with which it goes on sends how long all of the try took.
    """

    @wraps(execute)
    def timed(self: StreambankOperator, context: Context, **event: Any) -> R:
        began, ref = time.monotonic(), str(self.job)  # as it was asked: some name the job alone meanwhile
        if event:
            began -= (utc_now() - context["ti"].start_date).total_seconds()
        try:
            result = execute(self, context, **event)
        except (AirflowSkipException, TaskDeferred):
            raise
        except BaseException:
            _send_operation(self, ref, "failed", time.monotonic() - began)
            raise
        _send_operation(self, ref, "success", time.monotonic() - began)
        return result

    return timed


def _send_operation(operator: StreambankOperator, ref: str, outcome: str, seconds: float) -> None:
    from streambank_airflow.notify.stats import Gauges

    try:
        gauges = Gauges.of_settings()
        if not gauges.on or as_bool(getattr(operator, "plan_only", False), "plan_only"):
            return
        job, slash, query = ref.replace(SEPARATOR, "-").partition("/")
        named = query.replace("*", "all") if slash else MAIN
        gauges.send_operation(
            job, named, operator.operation, outcome=outcome, seconds=seconds, ended_s=time.time()
        )
    except Exception:
        # As everywhere in Airflow: what becomes of metrics decides nothing.
        operator.log.exception("The metrics could not be sent.")


class EndsWhenKilled(StreambankOperator):
    """An operator that does long work in this process, which ends when Airflow kills the task."""

    _work: tuple[str, str] | None = None

    @contextmanager
    def killable(self, what: str, then: str) -> Iterator[None]:
        """Do such work.

        Args:
            what: What it is: `drill`.
            then: What becomes of it when the task is killed, for the log.
        """
        self._work = what, then
        if self.deferrable or conf.getboolean("operators", "default_deferrable", fallback=False):
            until = "it only has to wait" if self.deferrable else "its end"
            self.log.info("The %s needs this worker: the task holds its slot until %s.", what, until)
        try:
            yield
        finally:
            self._work = None

    def on_kill(self) -> None:
        """End the work.

        Airflow calls this while `execute` runs below it in the same thread, and kills the process 5 seconds
        later. After a timeout `execute` is over by then, and with it the work.

        Raises:
            SystemExit: The work goes on unless something is raised. Airflow tries such a task again.
        """
        if self._work is not None:
            (what, then), self._work = self._work, None  # once: a second signal must not end the cleaning up
            self.log.warning("The %s of job %s is ended: %s", what, self.job, then)
            raise SystemExit(f"The {what} of job {self.job} was ended from outside.")


class SparkWork(StreambankOperator):
    """An operator whose work may go to Spark executors, where there is much of it.

    Args:
        spark_conn_id: A connection of the Spark provider; None for this worker alone.
        spark_properties: A file of Spark properties on the worker, for what is secret.
        on: `auto` where there are 64 GiB or 200,000 files to do, `spark` always.
    """

    spark_conn_id: str | Template | None = None
    spark_conf: Mapping[str, str] | Template | None = None
    spark_properties: str | Template | None = None
    on: str | Template = "auto"

    @property
    def spark(self) -> SparkChoice:
        """Where its work may go."""
        return SparkChoice(self.spark_conn_id, self.spark_conf or {}, self.spark_properties, self.on)

    @property
    def machines(self) -> Executor | None:
        """Who does the work; None for threads of this process."""
        own = partial(own_installation, lambda: self.hook.declared.job(self.job))
        return self.spark.executor(self.log.info, own)


def left_stopped(hook: StreambankHook, ref: str) -> str:
    """Say that a restore has failed and its job stands still; empty where that one is not stopped."""
    job = ref.partition("/")[0]
    try:
        if not hook.jobs.is_stopped(ref):
            return ""
    except StreambankError as error:
        return f"It is not known whether job {job} is stopped: {describe(error)}"
    return in_words(
        f"Job {job} is stopped and not restored: nothing starts it until a restore succeeds. To go on "
        f"without one, trigger {job}.run.",
        job,
    )


def asked_by(context: Context) -> dict[str, str]:
    """Who asks, for the records: the DAG run, its task and the person who triggered it."""
    run: Any = context["dag_run"]
    return who(
        "airflow",
        dag_id=run.dag_id,
        run_id=run.run_id,
        task_id=context["ti"].task_id,
        triggered_by=run.triggering_user_name,
    )


def asker(context: Context) -> str:
    """Who asks, for as long as Airflow tries again by itself; a task that a person clears asks again.

    Clearing raises `max_tries` by the tries there have been, so what is left names the round of tries.
    """
    instance: Any = context["ti"]
    begun = instance.max_tries - (instance.task.retries or 0)
    parts = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index, begun)
    return " ".join(map(str, parts))


def tried_by(context: Context) -> dict[str, str]:
    """Who asks, and in which round of tries: another try goes on with what the one before has done."""
    return {**asked_by(context), ASKER: asker(context)}


def by_schedule(context: Context) -> bool:
    """Whether a schedule asked for the run, and no person or other DAG."""
    run: Any = context["dag_run"]
    return str(getattr(run.run_type, "value", run.run_type)) == "scheduled"


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result of the engine without what is nested in it: what an XCom should be."""
    return {name: value for name, value in result.items() if not isinstance(value, (dict, list, tuple))}


def is_template(value: object) -> bool:
    """Whether only a run knows a value: a template, an output of a task, an argument of a mapped group.

    The DAG processor reads outlets, which cannot be such.
    """
    return not isinstance(value, str) or "{{" in value or "{%" in value


def known_or_template(value: str, option: str, choices: Sequence[str]) -> str:
    """A choice as it is when a DAG is read: one that is known, or what only a run will know.

    The task checks it once more when it runs.

    Raises:
        InputError: It is neither (code `bad-choice`).
    """
    literal = value is None or isinstance(value, int | float)
    return value if is_template(value) and not literal else check_choice(value, option, choices)
