"""What a form or a template chose, checked before the engine is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from streambank.core.choices import SinkChoice
from streambank.core.errors import InputError, check_choice
from streambank.core.names import MAIN
from streambank.core.restore_choices import parse_new_sinks, parse_sink_choices
from streambank.core.text import CONTROL
from streambank.declaration.objectives import PROMISES
from streambank.declaration.shared import why_taken
from streambank.declaration.state import BootstrapPolicy, TransformPolicy
from streambank.storage import followed, is_below, is_beside, normalize_location, same_place, scheme_of

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.declaration.places.copies import CopyPolicy

IfRunning = Literal["refuse", "stop"]
"""What can be asked for where a job's driver lives."""
DECLARED = "declared"
"""What a form chooses for what the job declares, at whichever site it is active."""
ALL_QUERIES = "*"
"""Stands for all queries of a job, which are restored as one."""
NEAREST = "nearest"
"""The repository or replica that is cheapest to read, and has the savepoint (choosing/nearest.py)."""
_PATTERN = re.compile(r"[*?\[\]{}\\%#]")
"""What Hadoop's file systems do not take as it is written: wildcards, and escapes."""


def new_sink_choices(value: Any) -> dict[str, str]:
    """The new output directories of a restore: a mapping, or `OLD=NEW` in a list or one in each line.

    A task runs in a folder of Airflow's choosing, and plan and restore are two tasks, so a relative path
    would mean nothing.

    Raises:
        InputError: It is something else (code `bad-option`), a line does not name one new directory (code
            `bad-new-sink`), or a directory is neither an absolute path nor a URI (code `bad-option`).
    """
    if isinstance(value, Mapping):
        found = {str(old): str(new) for old, new in value.items()}
    else:
        found = parse_new_sinks(_pairs(value, "new_sinks", "OLD=NEW", "/data/out=/data/new-out"))
    for place in (*found, *found.values()):
        if (
            scheme_of(place) == "file"
            and not place.startswith("file:")
            and not PurePosixPath(place).is_absolute()
        ):
            raise InputError(
                f"new_sinks must name directories by absolute paths or URIs, not {place!r}.",
                code="bad-option",
                hint="A relative path means nothing on a worker: write an absolute path or a URI.",
            )
    return found


def sink_choices(value: Any) -> dict[str, SinkChoice]:
    """What is done with single sinks: a mapping, or `SINK=CHOICE` in a list or one in each line.

    Raises:
        InputError: It is something else (code `bad-option`), or a line does not name one sink and a choice
            (`bad-sink-choice`).
    """
    if isinstance(value, Mapping):
        value = [f"{path}={choice}" for path, choice in value.items()]
    return parse_sink_choices(_pairs(value, "sink_of", "SINK=CHOICE", "/data/out=rollback"))


def _pairs(value: Any, option: str, form: str, example: str) -> list[str]:
    """What a list has, or the lines of a text; nothing of nothing."""
    if value is None or value == "None":
        return []
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, Sequence):
        raise InputError(
            f"{option} must be a list of {form}, not {value!r}.",
            code="bad-option",
            hint=f'Write ["{example}"].',
        )
    return [text for line in lines if (text := str(line).strip())]


def where_choice(value: str | bool | None, job: Job) -> tuple[str | None, bool]:
    """By which condition a form removes keys, and whether it is another one than the job declares.

    Args:
        value: What the form says: true for the declared one, a text, or false for none.

    Raises:
        InputError: It is another one, and the job does not allow that (code `expression-not-declared`).
    """
    declared = job.compact.where
    if value is False:
        return None, False
    if value == declared:
        return declared, False
    if job.compact.expressions == "any" and value is not True:
        _check_readable(str(value))
        return str(value), True
    if value is True and declared is not None:
        return declared, False
    there = f", {declared!r}." if declared is not None else ", and it declares none."
    raise _not_declared(job, "compact", "where", f"the condition that the job declares{there}")


def _not_declared(job: Job, verb: str, field: str, only: str) -> InputError:
    return InputError(
        f"The form of {job.name}.{verb} takes only {only}",
        code="expression-not-declared",
        hint=f"Declare `{field}` in [jobs.{job.name}.{verb}]; or let those who may trigger this DAG write "
        'SQL over the state: `expressions = "any"`.',
    )


def transform_choice(job: Job, given: Mapping[str, Any], query: str | None) -> tuple[dict[str, Any], bool]:
    """What a form sets or deletes in state, and whether that is something else than the job declares.

    Args:
        given: What the form says, by the fields of `TransformRequest`; an empty one stands for the declared
            one, unless the job allows any expression.
        query: Of which query; None for the only one.

    Raises:
        InputError: It is another one, and the job does not allow that (code `expression-not-declared`), or
            it cannot be read (`bad-expression`).
    """
    return _change_choice(job, "transform", job.changes.transform or TransformPolicy(), given, query)


def bootstrap_choice(job: Job, given: Mapping[str, Any], query: str | None) -> tuple[dict[str, Any], bool]:
    """From which table, by which expressions, a form makes state, and whether a person has typed any of it.

    Args:
        given: As for `transform_choice`, with the `table`.
        query: Of which query; None for the only one.

    Raises:
        InputError: As `transform_choice`; or the table is none that is declared, nor below one (code
            `place-not-allowed`).
    """
    policy = job.changes.bootstrap or BootstrapPolicy(())
    named = given["table"] or (policy.tables[0] if policy.tables else "")
    table = next((one for one in policy.tables if same_place(one, named)), None)
    typed = table is None
    if table is None:
        _check_table(job, named, policy.tables)
        table = normalize_location(named)
    rest = {name: value for name, value in given.items() if name != "table"}
    found, other = _change_choice(job, "bootstrap", policy, rest, query)
    return {"table": table, **found}, typed or other


def _check_table(job: Job, table: str, places: Sequence[str]) -> None:
    """Make sure that a table lies below a declared one, also as Spark reads its name.

    Raises:
        InputError: It does not (code `place-not-allowed`).
    """
    pattern = _PATTERN.search(table)
    if pattern is not None:
        raise InputError(
            f"{table} has {pattern[0]!r} in it, by which Spark may find other files than those of that name.",
            code="place-not-allowed",
            hint="Name one directory or file, without wildcards.",
        )
    if not any(is_below(table, one) for one in places):
        raise InputError(
            f"{table} is not a table that a form may make state of {job.name} from: that is, or is below, "
            f"{' or '.join(places) or 'no place at all'}.",
            code="place-not-allowed",
            hint=f"Name a table there, or declare another one: `tables` in [jobs.{job.name}.bootstrap].",
        )


def check_sql(job: Job, sql: str | bool | None, *, from_form: bool) -> str | None:
    """The SELECT over a table from which state is made: it may do what Spark may, so it is a declared one.

    Args:
        sql: True for the declared one; None or false for none, which in a form is the declared one.
        from_form: Whether it comes from a form.

    Raises:
        InputError: It is another one, and the job does not allow that (code `expression-not-declared`).
    """
    policy = job.changes.bootstrap
    declared = None if policy is None else policy.sql
    if sql in (None, "", "None", "False", "false", False):
        return declared if from_form else None
    text = str(sql)
    if declared is not None and text in ("True", "true", declared):
        return declared
    if text not in ("True", "true") and not from_form and policy is not None and policy.expressions == "any":
        return text
    raise InputError(
        f"State of {job.name} is made by no other SQL than the job declares"
        + (f", {declared!r}." if declared is not None else ", and it declares none."),
        code="expression-not-declared",
        hint=f"Declare `sql` in [jobs.{job.name}.bootstrap]; or let DAGs give other SQL, which a form never "
        'does: `expressions = "any"`.',
    )


def _change_choice(
    job: Job,
    verb: str,
    policy: TransformPolicy | BootstrapPolicy,
    given: Mapping[str, Any],
    query: str | None,
) -> tuple[dict[str, Any], bool]:
    if policy.query is not None and policy.expressions != "any" and query != policy.query:
        raise _not_declared(job, verb, "query", f"the query that the job declares, {policy.query}.")
    declared = {name: getattr(policy, name) for name in given}
    declared |= {name: [*value] for name, value in declared.items() if isinstance(value, tuple)}
    other = [name for name, value in given.items() if value != declared[name]]
    if policy.expressions == "any":
        for name in other:
            for text in given[name] if isinstance(given[name], list) else [given[name]]:
                if isinstance(text, str):
                    _check_readable(text)
        return dict(given), bool(other)
    for name in other:
        if given[name] not in (None, []):
            raise _not_declared(job, verb, name, f"what the job declares, and {name} is something else.")
    return declared, False


def _check_readable(condition: str) -> None:
    """Make sure that a typed condition does what it looks like to those who approve it."""
    hidden = CONTROL.search(condition) or re.search(r"--|/\*|[^\S ]| {2}", condition)
    if hidden is not None:
        raise InputError(
            f"The condition has {hidden[0]!r} in it, which a person who approves it may not see.",
            code="bad-expression",
            hint="Write it in one line, without comments, and with single blanks.",
        )


def check_form_places(
    job: Job, query: str | None, into: str | None, new_sinks: Mapping[str, str], jobs: Iterable[Job]
) -> None:
    """Make sure that a form names only places in which the job lets a restore write.

    Args:
        new_sinks: The new output directories, by the old ones.
        jobs: All jobs of its file.

    Raises:
        InputError: It names another one, or one that is taken (code `place-not-allowed`).
    """
    named = [("into", into, job.queries[query or MAIN], job.restore.into)] if into else []
    named += [("new_outputs", new, old, job.restore.new_outputs) for old, new in new_sinks.items()]
    jobs = list(jobs)
    for field, place, beside, below in named:
        taken = why_taken(place, jobs, _check_place(job, field, place, beside, below))
        if taken is not None:
            raise InputError(
                f"{place} is not where a form may let a restore of {job.name} write: {taken}.",
                code="place-not-allowed",
                hint="Name another directory, that nothing else uses.",
            )


def _check_place(job: Job, field: str, place: str, beside: str, below: Sequence[str] | None) -> str:
    """Make sure that a place is where it may be; the location below which that is."""
    if below is None and is_beside(place, beside):
        return f"{followed(place).rpartition('/')[0]}/"
    allowed = [one for one in below or () if is_below(place, one)]
    if allowed:
        return allowed[0]
    where = f"beside {beside}" if below is None else f"below {' or '.join(below) or 'no place at all'}"
    raise InputError(
        f"{place} is not where a form may let a restore of {job.name} write: that is {where}.",
        code="place-not-allowed",
        hint=f"Name a directory there, or declare other places: `{field}` in [jobs.{job.name}.restore].",
    )


def drill_repositories(job: Job) -> tuple[str, ...]:
    """Where a drill that a form asks for may take savepoints from: the usual place first."""
    usual = job.drill.repository or job.repository
    return tuple(dict.fromkeys((usual, job.repository, *job.replicate.to)))


def refresh_repositories(job: Job, copy: CopyPolicy) -> tuple[str, ...]:
    """Where a refresh of a copy that a form asks for may take savepoints from, `declared` first."""
    own = () if copy.repository is None else (copy.repository,)
    return tuple(dict.fromkeys((DECLARED, *own, *restore_repositories(job))))


def check_form_copy(job: Job, copy: str, repository: str | None) -> None:
    """Make sure that the form of a refresh names only a repository that the job declares, or None.

    Raises:
        NotFoundError: There is no such copy (code `no-such-copy`).
        InputError: It names another repository (code `place-not-allowed`).
    """
    policy = job.as_copy(copy).copy
    if policy is not None and repository != policy.repository:
        check_form_origin(job, repository)


def restore_repositories(job: Job) -> tuple[str, ...]:
    """Where a restore that a form asks for may take savepoints from; the job's repository alone, or first."""
    places = tuple(dict.fromkeys((job.repository, *job.replicate.to)))
    return (*places, NEAREST) if len(places) > 1 else places


def check_form_origin(job: Job, repository: str | None, verb: str = "restore") -> None:
    """Make sure that the form of a restore or a drill names only a repository that the job declares, or none.

    Raises:
        InputError: It names another one (code `place-not-allowed`).
    """
    allowed = drill_repositories(job) if verb == "drill" else restore_repositories(job)
    if repository is None or repository in allowed:
        return
    raise InputError(
        f"{repository} is not where a form may let a {verb} of {job.name} take savepoints from: that is "
        f"{' or '.join(allowed)}.",
        code="place-not-allowed",
        hint=f"Choose one of these, or declare it: `to` in [jobs.{job.name}.replicate].",
    )


def check_objectives(names: Sequence[str]) -> list[str]:
    """Names of objectives, checked when the DAG is read rather than waited for in vain.

    Raises:
        InputError: There is no such objective (code `bad-choice`).
    """
    known = ("history", *PROMISES)
    return [check_choice(name, "An objective", known) for name in names]


FORM_SETTINGS = frozenset(
    {
        "spark.sql.shuffle.partitions",
        *(
            f"spark.sql.adaptive.{name}"
            for name in (
                "enabled",
                "advisoryPartitionSizeInBytes",
                "autoBroadcastJoinThreshold",
                "coalescePartitions.enabled",
                "coalescePartitions.initialPartitionNum",
                "coalescePartitions.minPartitionSize",
                "coalescePartitions.parallelismFirst",
                "localShuffleReader.enabled",
                "skewJoin.enabled",
                "skewJoin.skewedPartitionFactor",
                "skewJoin.skewedPartitionThresholdInBytes",
            )
        ),
        *(
            f"spark.sql.streaming.{name}"
            for name in (
                "maxBatchesToRetainInMemory",
                "pollingDelay",
                "stateStore.rocksdb.blockCacheSizeMB",
                "stateStore.rocksdb.blockSizeKB",
                "stateStore.rocksdb.boundedMemoryUsage",
                "stateStore.rocksdb.compactOnCommit",
                "stateStore.rocksdb.highPriorityPoolRatio",
                "stateStore.rocksdb.lockAcquireTimeoutMs",
                "stateStore.rocksdb.maxMemoryUsageMB",
                "stateStore.rocksdb.maxOpenFiles",
                "stateStore.rocksdb.maxWriteBufferNumber",
                "stateStore.rocksdb.writeBufferCacheRatio",
                "stateStore.rocksdb.writeBufferSizeMB",
            )
        ),
        *(
            f"spark.{role}.{name}"
            for role in ("driver", "executor")
            for name in ("cores", "memory", "memoryOverhead", "memoryOverheadFactor")
        ),
        "spark.executor.instances",
        *(
            f"spark.dynamicAllocation.{name}"
            for name in (
                "enabled",
                "cachedExecutorIdleTimeout",
                "executorAllocationRatio",
                "executorIdleTimeout",
                "initialExecutors",
                "maxExecutors",
                "minExecutors",
                "schedulerBacklogTimeout",
                "shuffleTracking.enabled",
                "shuffleTracking.timeout",
                "sustainedSchedulerBacklogTimeout",
            )
        ),
    }
)
"""Settings that the form of an upgrade may change: each says how fast or large the job is, and no more. None
loads code, names a place, turns a check off, or says which files of a checkpoint are written or removed."""
_ENVIRONMENT = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, some of which are programs that run whatever their arguments say."""


def check_form_upgrade(job: Job, application: str | None, conf: Iterable[str]) -> None:
    """Make sure that the form of an upgrade runs no code but what it may, by the declaration.

    Raises:
        InputError: It would (code `place-not-allowed`, `bad-option`).
    """
    if application is not None and not _may_run(job, application):
        takes = job.upgrade.applications
        folder = PurePosixPath(job.application).parent
        may = (
            f"a program in {folder}"
            if takes is None
            else f"what {', '.join(takes)} names, from {folder}"
            if takes
            else "none but the declared one"
        )
        raise InputError(
            f"{application} is not an application that a form may let an upgrade of {job.name} run. That is "
            f"{may}, by its absolute path.",
            code="place-not-allowed",
            hint=f"Declare it: `applications` in [jobs.{job.name}.upgrade].",
        )
    for name in conf:
        if name not in FORM_SETTINGS:
            raise InputError(
                f"{name} is not a setting that a form may let an upgrade of {job.name} change.",
                code="bad-option",
                hint=f"Declare it in [jobs.{job.name}.spark], and trigger the upgrade without it.",
            )


def _may_run(job: Job, application: str) -> bool:
    path, declared = Path(application), Path(os.path.normpath(job.application))
    if path in (declared, Path(job.application)):
        return True
    if not path.is_absolute() or ".." in path.parts:
        return False
    try:
        real, there, folder = path.resolve(), path.is_file(), Path(job.application).resolve().parent
    except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a NUL
        return False
    if job.upgrade.applications is not None:
        patterns = [(at / one).parts for one in job.upgrade.applications for at in (declared.parent, folder)]
        named = any(
            len(one) == len(path.parts) and all(map(fnmatchcase, path.parts, one)) for one in patterns
        )
    else:
        installed = _ENVIRONMENT.intersection(real.parts) or any(
            (one / "pyvenv.cfg").exists() for one in real.parents
        )
        named = real.parent == folder and not installed
    return named and (there or not declared.exists())  # one in an image is not seen from here
