"""`streambank state ...`: look inside the state of a savepoint, or of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streambank.cli.output import console
from streambank.cli.verb_options import Commands
from streambank_spark.commands import change, compare, erase, fingerprints, read, rewrite, validate
from streambank_spark.commands.subject import SparkOptions, require_pyspark, spark_of, staging_of

if TYPE_CHECKING:
    from streambank.core.finding import Finding
    from streambank.declaration.declaration import Job
    from streambank.repository.repository import Repository
    from streambank.savepoint.verify import Deeper

app = Commands(
    name="state",
    help="Look inside the state of a savepoint, or of a checkpoint's committed batch; Spark reads it.",
    add_completion=False,
    no_args_is_help=True,
)
app.add(fingerprints, read, compare, validate, change, rewrite, erase)


@contextmanager
def deep_look(
    repository: Repository,
    job: Job | None,
    master: str | None,
    conf: Sequence[str],
    work: str | None,
) -> Iterator[Deeper]:
    """What opens the state of savepoints of a repository, for a `with`: one Spark for all of them.

    Args:
        job: The declared job that they are of; it may name the Spark.

    Raises:
        InputError: There is no PySpark here, or a property is none.
        StorageError: Spark fails (code `spark-failed`).
    """
    require_pyspark(job)
    from streambank_spark.state.verify import look_deep

    options = SparkOptions(master=master, spark_conf=tuple(conf), work=work)
    with spark_of(options) as session:

        def look(job: str, savepoint: str) -> list[Finding]:
            console.note(f"opening the state of {job}/{savepoint}")
            return look_deep(session, repository, job, savepoint, staging_of(options))

        yield look
