"""Counting rows by key where they enter a query's stateful operators, as a metric that Spark observes.

`Dataset.observe` is Spark's own way to have a figure computed beside a query; its node `CollectMetrics`
passes rows on as they are, and keeps no state. Its place is what is private: an application observes what it
calls `observe` on, and here the node goes below a stateful operator of a plan that is complete. So the plan
is taken apart and put together again, and its writer is made again with what the application has said of it.

Spark writes what it observes into its log and gives it to listeners. So hashes by which a key could be found
are observed only where that is declared. Others are salted: SHA-256 of a secret and the key's hash. The
secret is drawn for each start. Spark has it as a relation in memory, of which its plans show only the column,
so it is in no log and no event log.

Nothing in it can fail on a row. The keys are columns, or made of them by functions that cannot fail: an
expression may be evaluated here for a row that a filter would have taken away before the operator.

Private, read in the byte code of Spark 4.3.0: `Dataset.ofRows`, `LogicalPlan.withNewChildren`, the methods by
which operators name their keys, and the fields of `DataStreamWriter`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streambank.driver.spark_releases import FOR_KEY_SAMPLES, listed, release_of
from streambank.sla.skew.traffic import ACCURACY, MOST_SALTED, QUANTILES, SALTED_BITS
from streambank_spark.failures import first_line, not_supported
from streambank_spark.private import jvm

METRIC = "streambank.hot_keys."
"""Begins the name of the metric of an operator; its number follows."""
_HASH = "_streambank_hot_key"
_SAFE = frozenset(
    [
        "AttributeReference",
        "GetStructField",
        "Alias",
        "Literal",
        "Lower",
        "Upper",
        "Coalesce",
        "IsNull",
        "IsNotNull",
        "EqualNullSafe",
    ]
)
"""Classes of expressions that cannot fail, whatever the row."""
_SESSION = "spark.sessionWindow"
"""Metadata of a column that is a row's session window: it is not a key before rows are merged."""
_WRITER_FINAL = {"ds"}
"""Fields of a writer that its constructor sets."""


@dataclass(frozen=True, slots=True)
class SamplePoint:
    """A stateful operator, and how its traffic is measured.

    Attributes:
        name: Its node in Spark's plan.
        own: Whether that is the operator's own key, which decides the partition.
        why: Why it is not measured, without a full stop; None where it is.
    """

    operator: int
    name: str
    by: tuple[str, ...] = ()
    own: bool = False
    why: str | None = None


class _NotMeasuredError(Exception):
    """The traffic of an operator cannot be measured; its text says why."""


def require_known_spark(version: str) -> None:
    """Refuse a Spark in which plans were never taken apart.

    Raises:
        FormatError: It is such a one (code `spark-not-supported`).
    """
    release = release_of(version)
    if release is None or not release.samples_keys:
        raise not_supported(
            f"Hot keys cannot be sampled with Spark {version}: it needs a private part of Spark.",
            f"Run the job with Spark {listed(FOR_KEY_SAMPLES)}, or remove the table hot_keys.",
        )


def salted_partitions(session: Any) -> int:
    """By how many partitions the partition of a key is computed that its salted hash carries.

    Returns:
        As many as a query has that begins now; 1 where a hash has no room for so many.
    """
    found = int(session.conf.get("spark.sql.shuffle.partitions"))
    return found if found <= MOST_SALTED else 1


def observed(
    frame: Any, sample: float, keys: Sequence[str] = (), salted: int | None = None
) -> tuple[Any, list[SamplePoint]]:
    """A streaming DataFrame with a metric at the input of each stateful operator.

    Args:
        sample: The share of rows whose key is counted.
        keys: The columns that count as the key; those of each operator if there are none.
        salted: Observe salted hashes, with the partition of so many; None for those that lead to the key.

    Returns:
        The JVM's Dataset of the same rows, None where nothing in it is measured; and its stateful operators.

    Raises:
        FormatError: Another Spark (code `spark-not-supported`).
        PySparkException, Py4JError: Spark did not accept the plan.
    """
    from pyspark import __version__

    require_known_spark(__version__)
    found: list[SamplePoint] = []
    plan = frame._jdf.queryExecution().analyzed()
    session = frame.sparkSession
    changed = _changed(plan, _Sampler(session, sample, keys, salted), found)
    if all(one.why is not None for one in found):
        return None, found
    made = _dataset(session, changed)
    if not str(made.schema().json()) == str(frame._jdf.schema().json()):
        raise not_supported("The plan with the sample of its keys has another schema than without.")
    return made, found


class _Sampler:
    """How rows are sampled, the same for all operators of a query."""

    def __init__(self, session: Any, sample: float, keys: Sequence[str], salted: int | None) -> None:
        self.session = session
        self.keys = keys
        self._sample = sample
        self._salted = salted
        self._secret = secrets.token_hex(16)

    def taken(self, by: Sequence[str]) -> Column:
        """The hash of a key, as a column; null for rows that are not in the sample."""
        key = ", ".join(by)
        if self._salted is None:
            hashed = F.expr(f"shiftleft(hash({key}) & 4294967295L, 20) | (xxhash64({key}) & 1048575L)")
        else:
            said = F.concat(self._secret_column(), F.expr(f"cast(xxhash64({key}) AS string)"))
            partition = F.expr(f"shiftleft(cast(pmod(hash({key}), {self._salted}) AS long), {SALTED_BITS})")
            hashed = partition.bitwiseOR(
                F.xxhash64(F.sha2(said, 256)).bitwiseAND(F.lit((1 << SALTED_BITS) - 1))
            )
        return hashed if self._sample >= 1 else F.when(F.rand() < self._sample, hashed)

    def _secret_column(self) -> Column:
        rows = jvm.gateway().jvm.java.util.ArrayList()
        rows.add(self._secret)
        text = jvm.gateway().jvm.org.apache.spark.sql.Encoders.STRING()
        one_row = self.session._jsparkSession.createDataset(rows, text).toDF()
        return DataFrame(one_row, self.session).scalar()


def _changed(node: Any, sampler: _Sampler, found: list[SamplePoint], filtered: bool = False) -> Any:
    """A node with all below it; its stateful operators are numbered from the top, as Spark does it.

    Below a filter or a join nothing is measured: Spark moves conditions on the key below the operator, and
    the metric would be in their way, so that the application's expressions met rows that they were never
    given.
    """
    if not node.isStreaming():
        return node
    name = str(node.nodeName())
    filtered = filtered or name in ("Filter", "Join")
    point = None
    if jvm.keeps_state(node):
        point = len(found)
        found.append(SamplePoint(point, name))
    below = list(jvm.elements(node.children()))
    children = [_changed(one, sampler, found, filtered) for one in below]
    if point is not None:
        try:
            if filtered and name != "Join":
                raise _NotMeasuredError("a filter or a join comes after it, which Spark moves before it")
            by, own = _keys(node, name, sampler.keys)
            children[0] = _sampled(children[0], sampler, by, point)
            found[point] = SamplePoint(point, name, tuple(by), own)
        except _NotMeasuredError as error:
            found[point] = SamplePoint(point, name, why=str(error))
    if all(one.equals(other) for one, other in zip(below, children, strict=True)):
        return node
    return node.withNewChildren(jvm.gateway().jvm.PythonUtils.toSeq(children))


def _keys(node: Any, name: str, declared: Sequence[str]) -> tuple[list[str], bool]:
    if name == "Join":
        raise _NotMeasuredError("a join has keys on both sides, which are not sampled")
    if name == "GlobalLimit":
        raise _NotMeasuredError("it has no key")
    if declared:
        return [_quoted(one) for one in declared], False
    keys = [key for key in _own_keys(node, name) if not _is_session(key)]
    if not keys:
        raise _NotMeasuredError("it has no key: all rows are one group")
    for key in keys:
        _check(key)
    return [str(key.sql()) for key in keys], True


def _own_keys(node: Any, name: str) -> list[Any]:
    if name == "Aggregate":
        return list(jvm.elements(node.groupingExpressions()))
    if name.startswith("Deduplicate"):
        return list(jvm.elements(node.keys()))
    if name == "Distinct":
        return list(jvm.elements(node.child().output()))
    if name == "TransformWithStateInPySpark":
        return list(jvm.elements(node.leftAttributes()))[: int(node.groupingAttributesLen())]
    return list(jvm.elements(node.groupingAttributes()))


def _is_session(key: Any) -> bool:
    return _class(key) == "AttributeReference" and bool(key.metadata().contains(_SESSION))


def _check(key: Any) -> None:
    nodes = [key]
    while nodes:
        node = nodes.pop()
        if _class(node) not in _SAFE:
            raise _NotMeasuredError(
                f"its key is computed ({_class(node)}), which would be done twice; declare columns as "
                "hot_keys.keys"
            )
        nodes += jvm.elements(node.children())


def _sampled(child: Any, sampler: _Sampler, by: Sequence[str], operator: int) -> Any:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
    from pyspark.errors import PySparkException

    middles = ", ".join(f"{(2 * n + 1) / (2 * QUANTILES)!r}D" for n in range(QUANTILES))
    try:
        frame = DataFrame(_dataset(sampler.session, child), sampler.session)
        observed = frame.withColumn(_HASH, sampler.taken(by)).observe(
            f"{METRIC}{operator}",
            F.expr("count(1) AS rows"),
            F.expr(f"count({_HASH}) AS sampled"),
            F.expr(f"approx_count_distinct({_HASH}) AS keys"),
            F.expr(f"percentile_approx({_HASH}, array({middles}), {ACCURACY}) AS quantiles"),
        )
        plan: Any = observed.drop(_HASH)._jdf.queryExecution().analyzed()
    except (PySparkException, Py4JError) as error:
        raise _NotMeasuredError(f"its keys cannot be hashed: {first_line(error).rstrip('.')}") from error
    if not plan.output().equals(child.output()):
        raise _NotMeasuredError("its input has columns that cannot be passed on as they are")
    return plan


def _dataset(session: Any, plan: Any) -> Any:
    from pyspark import __version__

    package = "" if __version__.startswith("3.") else "classic."
    of_rows = getattr(getattr(jvm.gateway().jvm, f"org.apache.spark.sql.{package}Dataset$"), "MODULE$").ofRows
    return of_rows(session._jsparkSession, plan)


def writer_of(writer: Any, dataset: Any) -> Any:
    """A writer of the JVM for another Dataset, with all that an application has said itself.

    Args:
        writer: The JVM's `DataStreamWriter`.
        dataset: The JVM's Dataset, of the same schema.

    Raises:
        FormatError: It has other fields than are known (code `spark-not-supported`).
    """
    made = dataset.writeStream()
    modifier = jvm.gateway().jvm.java.lang.reflect.Modifier
    kept = set()
    for one in writer.getClass().getDeclaredFields():
        flags = one.getModifiers()
        if modifier.isStatic(flags):
            continue
        if modifier.isFinal(flags):
            kept.add(str(one.getName()))
            continue
        one.setAccessible(True)
        one.set(made, one.get(writer))
    if kept != _WRITER_FINAL:
        raise not_supported(
            f"Spark's DataStreamWriter has other fields than are known: {', '.join(sorted(kept))}."
        )
    return made


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())
