"""What the operators and sensors share: which job, found how, and on whose behalf."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, is_dataclass
from functools import cached_property, partial, wraps
from inspect import Parameter, Signature
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform, get_origin

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
    conf,
)
from airflow.sdk import BaseOperator

from streambank.core.errors import StreambankError, check_choice
from streambank.core.names import MAIN, SEPARATOR
from streambank.core.options import OptionField, as_bool, as_data, as_duration_s, options_of, values_of
from streambank.core.units import utc_now
from streambank.declaration.credentials import refuse_written
from streambank.driver.installed import own_installation
from streambank_airflow.arguments import OfJob, Templated, argument
from streambank_airflow.assets import page_asset, savepoint_alias, savepoint_asset
from streambank_airflow.caller import asked_by as asked_by
from streambank_airflow.caller import by_schedule as by_schedule
from streambank_airflow.caller import tried_by as tried_by
from streambank_airflow.configuration import page_is_on
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.failures import airflow_failures, close_log, describe
from streambank_airflow.hints import hint_for, in_words, is_own_dag
from streambank_airflow.hooks.declared import as_plain, folder_of, given_for, located, refuse_both
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID, StreambankHook
from streambank_airflow.markdown import rows_table
from streambank_airflow.page.names import job_of
from streambank_airflow.templates import RendersTexts

if TYPE_CHECKING:
    from airflow.sdk import Asset, AssetAlias, Context

    from streambank.declaration.declaration import Job
    from streambank.work.executor import Executor
    from streambank_airflow.arguments import Output


Options = TypeVar("Options")
Declaration = Mapping[str, Any] | str
"""A declaration as an operator has it: its fields, or their JSON from a template. It is read as a whole."""

REPORT_KEY = "report_markdown"
"""XCom key under which a report is left for people."""
GENERATIONS_KEY = "planned_generations"
"""XCom key under which a plan leaves the generations that it is of."""
RESULT_KEY = "return_value"
"""XCom key of what an operator returns, for one that leaves it there and then fails."""
_LENGTHS = ("poke_interval", "timeout")
"""Lengths of time that Airflow's sensors take as numbers alone."""


@dataclass_transform(kw_only_default=True)
class FindsJobs(RendersTexts):
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
    jobs_file: Any
    declaration: Any = None
    streambank_conn_id: Any
    deferrable: bool = False
    poll_interval_s: Any = 5.0
    on_failure_callback: Any
    on_retry_callback: Any
    on_success_callback: Any
    page_parts: ClassVar[Collection[str] | None] = None
    """What is kept for the job's page at its end (page/keep.py): these parts, or all that are usual."""
    page_inlet = cast("Asset | None", None)  # annotated, it would be a field to mypy
    """The asset of its job's page, where the DAG file names the job."""
    at_failure: ClassVar[tuple[Callable[[Context], None], ...]] = ()
    """Called where it fails for good: after the user's callbacks, before the page, which takes its time."""
    if TYPE_CHECKING:

        @property
        def output(self) -> Output:
            """What it returns; each field of that is an XCom: `take.output["savepoint"]`."""

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
        said = {name: kwargs[name] for name in _LENGTHS if isinstance(kwargs.get(name), str)}
        lengths = {name: as_duration_s(value) for name, value in said.items()}
        super().__init__(*args, **{**self.usual, **kwargs, **lengths})
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

    def name_page(self) -> None:
        """Name the asset of the job's page as an inlet, in a DAG of one's own whose file names the job.

        By it the page knows which DAGs work on the job, and Airflow keeps with it what the page shows. Of the
        DAGs of `build_dags` one task alone names it.
        """
        operator: Any = self  # this is a mixin
        job, is_own = job_of(self), not operator.has_dag() or is_own_dag(operator.dag)
        inlet = page_asset(job) if job is not None and is_own and page_is_on() else None
        if inlet != self.page_inlet:
            others = [one for one in operator.inlets if one is not self.page_inlet]
            self.page_inlet, operator.inlets = inlet, [*others, *([inlet] if inlet else [])]

    @property
    def trigger_arguments(self) -> dict[str, Any]:
        """What every trigger on a job takes."""
        return {
            "job": self.job,
            **self.declared_by,
            "streambank_conn_id": self.streambank_conn_id,
            "poll_interval_s": self.poll_interval_s,
        }

    @property
    def declared_by(self) -> dict[str, Any]:
        """What declares the job, for the hook and for triggers, which do not know the DAG's file."""
        refuse_both(self.jobs_file, self.declaration)
        dag: Any = self.get_dag()  # type: ignore[attr-defined]  # a mixin
        folder = None if dag is None else folder_of(dag)
        given = given_for(getattr(self, "job", None), self.declaration, folder)
        return {"jobs_file": located(self.jobs_file, folder)} if given is None else {"declaration": given}

    def check_given(self) -> None:
        """Refuse what is wrong with what declares the job as soon as the DAG is read, where it is known then.

        Raises:
            InputError: There are a jobs file and a declaration, as one is of `default_args` (code
                `bad-option`), or a secret is in the declaration, which Airflow would store and show
                (`bad-declaration`).
        """
        if not isinstance(self.declaration, Mapping):
            return
        if not is_template(self.jobs_file):
            refuse_both(self.jobs_file, self.declaration)
        refuse_written({"name": getattr(self, "job", None), **self.declaration})

    def check_deferrable(self) -> None:
        """Refuse a wait that cannot be handed to the triggerer, before anything is done that it is for.

        Raises:
            InputError: An argument cannot be handed over (code `bad-option`), or the declaration is wrong.
        """
        if self.deferrable:
            from streambank_airflow.triggers.base import check_deferrable

            check_deferrable(self.trigger_arguments)
            if self.declaration is not None:
                self.hook.declared.load()  # a secret in it is refused before it is stored with a trigger

    @cached_property
    def hook(self) -> StreambankHook:
        """The hook; to be used once the templates are rendered."""
        return StreambankHook(self.streambank_conn_id, **self.declared_by)

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

    def said_of(self, event: Mapping[str, Any]) -> str:
        """What the failure of a wait says, and what to do."""
        hint = hint_for(event.get("code", ""), event.get("hint", ""), str(self.job).partition("/")[0])
        return self.in_words(event["message"]) + (f"\nHint: {hint}" if hint else "")

    def raise_for_error(self, event: Mapping[str, Any]) -> None:
        """End the task where the wait itself failed.

        Raises:
            AirflowFailException: Something that somebody has to decide or repair.
        """
        if event["status"] == "error":
            kind = AirflowException if event["retryable"] else AirflowFailException
            raise kind(self.said_of(event))

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
        if hasattr(kwargs.get("job"), "to_dict"):  # a StreamingJob is a job, and its declaration
            refuse_both(kwargs["job"], kwargs.get("declaration"), "job and declaration")
            kwargs |= {"declaration": kwargs["job"], "job": kwargs["job"].name}
        if may_be_named and kwargs.get("job") is None:
            kwargs["job"] = _named_in(kwargs.get("declaration"))
        given = {name: kwargs.pop(name) for name in own if name in kwargs}
        super(operator, self).__init__(**kwargs)
        for name, one in own.items():
            value = given[name] if name in given or one.default is None else one.default()
            if value is None and one.default is None and not one.optional:
                raise one.missing()
            if one.values and not (value is None and one.optional):
                check = known_or_template if name in operator.arguments else check_choice
                value = check(value, name, one.values)
            setattr(self, name, value)
        if "declaration" in own:
            self.check_given()
        if "after_init" in vars(operator):
            operator.after_init(self)  # its own: those of its bases are called with their arguments
        if self.page_parts != ():
            self.name_page()  # with each class that adds arguments: one may say that the job has none

    # Only where the job has to be named: elsewhere none means several, or those of a whole file.
    may_be_named = {"job", "declaration"} <= own.keys() and own["job"].default is None
    defaults = {name: Parameter.empty if one.default is None else one.default() for name, one in own.items()}
    if may_be_named:
        defaults["job"] = ""  # else Airflow itself asks for it, before this does
    keywords = [Parameter(name, Parameter.KEYWORD_ONLY, default=one) for name, one in defaults.items()]
    first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    rest = Parameter("kwargs", Parameter.VAR_KEYWORD)
    __init__.__signature__ = Signature([first, *keywords, rest])  # type: ignore[attr-defined]
    return __init__


def _named_in(declaration: Any) -> str | None:
    """The job that a declaration names, where the DAG file has it."""
    name = as_plain(declaration).get("name") if isinstance(as_plain(declaration), Mapping) else None
    return name if isinstance(name, str) else None


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
            a copy of its state. A `StreamingJob` is its own declaration.
        jobs_file: The file that declares it, a path or a URI; a relative path is looked for beside the DAG
            file first. None for the one that the connection names.
        declaration: The job instead of a jobs file: a `StreamingJob`, or a mapping with its fields. The job's
            repository may be left to the connection.
        streambank_conn_id: The default one need not exist where `jobs_file` says everything.
        note: Why; kept with the records of what is done.
    """

    # Each field of the result is a separate XCom, so that `take.output["savepoint"]` is what it says.
    usual: ClassVar[Mapping[str, Any]] = {"multiple_outputs": True}
    job: OfJob[str]
    jobs_file: Templated[str | PathLike[str] | None] = argument(None)
    declaration: OfJob[Declaration | None] = argument(None)
    streambank_conn_id: Templated[str] = argument(DEFAULT_CONN_ID)
    note: Templated[str | None] = argument(None)
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

    _named = cast("str | None", None)  # annotated, it would be an argument
    """The job that the DAG file names, for its outlet."""

    @property
    def job_in_dag(self) -> str | None:
        """The job without its query, where the DAG file names it; None where only a run knows it."""
        return None if is_template(self.job) else self.job.partition("/")[0] or None

    @property
    def savepoint_outlet(self) -> AssetAlias:
        """Through which its savepoints become events of the job's asset, whichever job that is."""
        return savepoint_alias(self._named)

    def add_savepoint_outlet(self, *, sure: bool) -> None:
        """Let the DAG know that it makes savepoints.

        Args:
            sure: Whether each success makes one, so that the asset itself is an outlet: of a job that the DAG
                file names, in a task that is not mapped, for Airflow knows no outlets of a mapped one.
        """
        self._named = self.job_in_dag
        # Airflow's own name for it: there is no public one.
        is_mapped = getattr(self, "_BaseOperator__from_mapped", False)
        if sure and self._named is not None and not is_mapped:
            self.outlets = [*self.outlets, savepoint_asset(self._named)]
        else:
            self.outlets = [*self.outlets, self.savepoint_outlet]

    def tell_savepoint(self, context: Context, extra: Mapping[str, Any]) -> None:
        """Tell of a savepoint as an event of the job's asset."""
        asset, events = savepoint_asset(str(self.job)), context["outlet_events"]
        if asset in self.outlets:
            events[asset].extra = {**extra}
        elif self.savepoint_outlet in self.outlets:
            events[self.savepoint_outlet].add(asset, extra={**extra})

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
        return values_of(self, options)

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

    spark_conn_id: Templated[str | None] = argument(None)
    spark_conf: Templated[Mapping[str, str] | None] = argument(None)
    spark_properties: Templated[str | None] = argument(None)
    on: Templated[str] = argument("auto")

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


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result of the engine without what is nested in it: what an XCom should be."""
    return {name: value for name, value in result.items() if not isinstance(value, (dict, list, tuple))}


def is_template(value: object) -> bool:
    """Whether only a run knows a value: a template, an output of a task, an argument of a mapped group.

    The DAG processor reads outlets, which cannot be such.
    """
    return not isinstance(value, str) or "{{" in value or "{%" in value


def known_texts(value: Any) -> Sequence[str] | None:
    """A list as it is when a DAG is read, one text being a list of one; None where only a run knows it."""
    texts = [value] if isinstance(value, str) else value
    return None if not isinstance(texts, Sequence) or any(map(is_template, texts)) else texts


def known_or_template(value: str, option: str, choices: Sequence[str]) -> str:
    """A choice as it is when a DAG is read: one that is known, or what only a run will know.

    The task checks it once more when it runs.

    Raises:
        InputError: It is neither (code `bad-choice`).
    """
    literal = value is None or isinstance(value, int | float)
    return value if is_template(value) and not literal else check_choice(value, option, choices)
