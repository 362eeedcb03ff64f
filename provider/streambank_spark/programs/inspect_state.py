"""Which keys the state of a query belongs to: the driver of `inspect_state.py`.

Of a checkpoint, or of a savepoint, which is laid out in a folder of its own first and removed afterwards;
against an earlier savepoint, where one is named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streambank.core.errors import InputError, NotFoundError, StorageError, StreambankError
from streambank.core.names import QueryRef
from streambank.core.text import visible
from streambank.declaration.declaration import Job
from streambank.declaration.load import read_jobs
from streambank.repository.catalog import newest_good
from streambank.repository.repository import Repository
from streambank.sla.skew.hot_key_record import keep_hot_keys
from streambank.storage import open_store
from streambank_spark.failures import first_line, refuse_wrong_schema, say, say_error
from streambank_spark.state.hot_keys import by_key, changes, sizes
from streambank_spark.state.staging import Staging, materialized_savepoint, require_schemas, require_shared
from streambank_spark.state.state import QueryState

TOP = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Inspect what the arguments name; 0, or the error's exit code, and on stderr its sentence and hint."""
    try:
        options = parse(argv)
        spark = SparkSession.builder.appName("streambank-inspect-state").getOrCreate()
        try:
            report = inspect_state(spark, options)
        except PySparkException as error:
            refuse_wrong_schema(error)
            raise StorageError(
                f"Spark could not read the state: {first_line(error)}",
                code="spark-failed",
                hint="The full message is in the driver's log. If the query runs, inspect a savepoint.",
            ) from error
        finally:
            spark.stop()
        if options.record:
            keep(options, report)
        if options.report is not None:
            options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print("\n".join(map(visible, lines(report))))
    except StreambankError as error:
        return say_error(error)
    return 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments.

    Raises:
        InputError: Some do not go together (code `usage`).
    """
    options = _parser().parse_args(argv)
    _check(options)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inspect_state.py", description="Find the largest keys of a query's state."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--checkpoint", help="a checkpoint directory: a path or a URI")
    what.add_argument(
        "--savepoint",
        help="a savepoint's id, or the unique beginning of one (default with --jobs: the newest good one)",
    )
    parser.add_argument(
        "--batch",
        type=int,
        help="with --checkpoint: a committed batch that Spark still retains (default: the newest)",
    )
    parser.add_argument(
        "--against", metavar="SAVEPOINT", help="an earlier savepoint: show what changed since"
    )
    parser.add_argument("--repository", "-r", help="the repository of the savepoints")
    parser.add_argument(
        "--jobs", metavar="FILE", help="the file that declares the jobs, instead of --repository"
    )
    parser.add_argument("--job", help="the job of the savepoint: job, or job/query")
    parser.add_argument(
        "--record",
        action="store_true",
        help="store the size of the largest key in the job's records, for `hot_key` of its SLA",
    )
    parser.add_argument("--operator", type=int, help="only this stateful operator")
    parser.add_argument("--part", help="only this part: left, right, a state variable, a store")
    parser.add_argument("--by", default="key", help="what counts as a key: an SQL expression (default: key)")
    parser.add_argument("--top", type=int, default=TOP, help="how many keys to show")
    parser.add_argument(
        "--work", help="staging directory for savepoints; on a cluster, all machines must see it"
    )
    parser.add_argument("--report", type=Path, help="write the answer here, as JSON")
    return parser


def _check(options: argparse.Namespace) -> None:
    declared = options.jobs is not None and options.job is not None
    if (options.jobs is not None or options.record) and not declared:
        raise _usage("--jobs and --job go together.", "Give --jobs FILE --job NAME.")
    if options.record and (options.operator is not None or options.part is not None):
        raise _usage("--record needs all of the state.", "Leave out the options that select a part of it.")
    if options.jobs is not None:
        _declared(options)
    if options.checkpoint is None and options.savepoint is None:
        raise _usage("Say what to inspect.", "Give --checkpoint, --savepoint, or --jobs and --job.")
    saved = options.savepoint is not None or options.against is not None
    if saved and options.repository is None:
        raise _usage("A savepoint needs its repository.", "Give --repository LOCATION.")
    if options.batch is not None and options.checkpoint is None:
        raise _usage("--batch is for checkpoints.", "A savepoint holds only one batch.")
    if options.top < 1:
        raise _usage("--top must be at least 1.", "Say how many keys to show.")


def _usage(message: str, hint: str) -> InputError:
    return InputError(message, code="usage", hint=hint)


def _declared(options: argparse.Namespace) -> None:
    """Fill in what the declaration says: the repository, and its newest savepoint of the query.

    Raises:
        InputError: The jobs file is wrong, or `--job` names no query (code `which-query`).
        NotFoundError: There is no such job, or no good savepoint of it (`no-such-savepoint`).
    """
    job, query = _job_of(options)
    options.repository = options.repository or job.repository
    if options.checkpoint is None and options.savepoint is None:
        name = job.savepoint_name(query)
        (newest,) = newest_good(open_store(options.repository), name, 1)[:1] or (None,)
        if newest is None:
            raise NotFoundError(
                f"There is no good savepoint of {name}.", code="no-such-savepoint", hint="Take one first."
            )
        options.savepoint = newest.savepoint


def _job_of(options: argparse.Namespace) -> tuple[Job, str | None]:
    asked = QueryRef.parse(options.job)
    job = read_jobs(options.jobs).around(asked.job).job(asked.job)
    if asked.query not in job.query_names:
        known = ", ".join(job.savepoint_name(one) for one in job.query_names)
        raise InputError(
            f"{options.job} is not a declared query.", code="which-query", hint=f"Use one of: {known}."
        )
    return job, asked.query


def keep(options: argparse.Namespace, report: Mapping[str, Any]) -> None:
    """Keep the size of each operator's largest key among the job's records."""
    job, query = _job_of(options)
    operators = [
        {"operator": one["operator"], "keys": one["keys"]}
        | {name: one["top"][0][name] if one["top"] else None for name in ("times_mean", "rows", "partitions")}
        for one in report["operators"]
    ]
    keep_hot_keys(job.records(), query, of=report["of"], batch=report["batch"], operators=operators)


def inspect_state(spark: SparkSession, options: argparse.Namespace) -> dict[str, Any]:
    """The report that the arguments ask for."""
    master = spark.sparkContext.master or ""
    with ExitStack() as stack:
        if options.savepoint is None:
            source = str(options.checkpoint)
            state = QueryState(spark, source, options.batch)
        else:
            source, folder = stack.enter_context(laid_out(master, options, options.savepoint))
            require_shared(spark, folder)
            state = QueryState(spark, folder)
        report: dict[str, Any] = {
            "of": source,
            "batch": state.closure.batch,
            "by": options.by,
            "against": None,
        }
        earlier = None
        if options.against is not None:
            name, folder = stack.enter_context(laid_out(master, options, options.against))
            require_shared(spark, folder)
            earlier = QueryState(spark, folder)
            report["against"] = {"of": name, "batch": earlier.closure.batch}
        report["operators"] = [
            _operator(state, earlier, operator.operator, options)
            for operator in state.operators(options.operator)
        ]
        return report


def _operator(
    state: QueryState, earlier: QueryState | None, number: int, options: argparse.Namespace
) -> dict[str, Any]:
    (operator,) = state.operators(number)
    grouped = _grouped(state, number, options).persist()
    try:
        found = {
            "operator": number,
            "name": operator.name,
            "parts": [part.name for part in state.parts(operator, options.part)],
            **sizes(grouped, options.top).to_dict(),
            "changes": None,
        }
        if earlier is not None:
            found["changes"] = changes(_grouped(earlier, number, options), grouped, options.top).to_dict()
        return found
    finally:
        grouped.unpersist()


def _grouped(state: QueryState, number: int, options: argparse.Namespace) -> DataFrame:
    (operator,) = state.operators(number)
    parts = state.parts(operator, options.part)
    return by_key([state.frame(part) for part in parts], options.by)


@contextmanager
def laid_out(master: str, options: argparse.Namespace, reference: str) -> Iterator[tuple[str, str]]:
    """A savepoint's name, and its own checkpoint directory that Spark can read, for a `with`."""
    repository = Repository.open(open_store(options.repository))
    job, savepoint = repository.find(reference, options.job)
    staging = Staging(master, options.work, say)
    with materialized_savepoint(repository, job, savepoint, staging) as found:
        require_schemas(found.manifest)
        yield found.of, found.location


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    yield f"state of {report['of']}, batch {report['batch']}, by {report['by']}"
    for found in report["operators"]:
        yield ""
        name = f" {found['name']}" if found["name"] else ""
        yield (
            f"operator {found['operator']}{name} ({', '.join(found['parts'])}): "
            f"{found['keys']:,} keys, {found['rows']:,} rows, {found['bytes']:,} bytes as JSON"
        )
        for key in found["top"]:
            where = ", ".join(str(number) for number in key["partitions"][:5])
            yield (
                f"{key['times_mean']:10.2f} times the mean  {key['rows']:>10,} rows"
                + f"  {key['bytes']:>14,} bytes"
                + f"  partition {where}  {json.dumps(key['key'])}"
                + ("  HOT" if key["hot"] else "")
            )
        if found["changes"] is not None:
            yield from _changed(report["against"], found["changes"])


def _changed(against: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"since {against['of']}, batch {against['batch']}: {found['added']:,} keys added, "
        f"{found['removed']:,} removed, {found['changed']:,} changed, {found['same']:,} the same"
    )
    for key in found["top"]:
        yield (
            f"{key['bytes'] - key['bytes_before']:>+14,} bytes  "
            f"{key['rows'] - key['rows_before']:>+10,} rows  {key['change']:<7}  {json.dumps(key['key'])}"
        )
