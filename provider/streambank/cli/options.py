"""Options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from streambank.cli.console import MODE


def _json(value: bool) -> bool:
    MODE.json = value
    return value


def _debug(value: bool) -> bool:
    MODE.debug = value
    return value


Json = Annotated[
    bool,
    typer.Option("--json", callback=_json, is_eager=True, help="Answer with one JSON document on stdout."),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_debug, is_eager=True, help="Show the traceback of an error."),
]
RepositoryOption = Annotated[
    str,
    typer.Option(
        "--repository",
        "-r",
        envvar="STREAMBANK_REPOSITORY",
        metavar="LOCATION",
        help="The savepoint repository.",
    ),
]
JobOption = Annotated[str | None, typer.Option("--job", metavar="NAME", help="Only this job, or job/query.")]
JobsFile = Annotated[
    str,
    typer.Option("--jobs", envvar="STREAMBANK_JOBS", metavar="FILE", help="The file that declares the jobs."),
]
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="A checkpoint directory: a path or a URI.")
]
SavepointName = Annotated[
    str, typer.Argument(metavar="SAVEPOINT", help="A savepoint's id, or the unique beginning of one.")
]


class Where(StrEnum):
    """Where files are copied, hashed or written."""

    auto = "auto"
    here = "here"
    spark = "spark"


On = Annotated[
    Where,
    typer.Option(
        "--on",
        help="here: threads of this process; spark: executors of --master; "
        "auto: spark where a master is named and there is much to do.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="STREAMBANK_SPARK_MASTER",
        metavar="URL",
        help="Spark's master: spark://host:7077, yarn.",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="KEY=VALUE", help="A Spark property; may be repeated."),
]
SparkProperties = Annotated[
    str | None,
    typer.Option(
        "--spark-properties", metavar="FILE", help="A file of Spark properties, for what is secret."
    ),
]
