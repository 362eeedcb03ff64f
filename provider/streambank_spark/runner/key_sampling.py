"""Hot keys by traffic of one query: its metric is attached at the start, and read from each batch's progress.

Neither may stop the query. What fails before the start leaves the plan as the application made it, a start
that fails with the metric is tried without it, and progress that cannot be read ends the measurement. Each is
noted once, as an event, and stands in the progress records as the reason why nothing is measured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import RefusedError, StreambankError
from streambank.core.json_text import loads
from streambank.declaration.state import HotKeysPolicy
from streambank.sla.skew.traffic import BatchSample, Traffic
from streambank_spark.failures import first_line
from streambank_spark.private import key_samples
from streambank_spark.private.key_samples import METRIC, SamplePoint

_log = logging.getLogger(__name__)

NOT_SAMPLED = "hot-keys-not-sampled"
"""The kind of event that says why the keys of a query are not counted."""
SAMPLED = "hot-keys-sampled"
"""The kind of event that says of which operators the keys are counted."""


@dataclass(slots=True)
class KeySampling:
    """The measurement of a query; `dataset` is the JVM's with the metric, or None: nothing is measured."""

    query: str
    points: list[SamplePoint]
    traffic: Traffic
    dataset: Any
    note: Callable[..., None]

    def start(self, writer: Any, start: Callable[[], Any]) -> Any:
        """Start the query with the metric, and without it where that fails; the writer is left as it was."""
        if self.dataset is None:
            return start()
        plain = writer._jwrite
        try:
            writer._jwrite = key_samples.writer_of(plain, self.dataset)
            return start()
        except RefusedError:  # the runner's own, which the metric does not cause
            raise
        except Exception as error:  # whatever it is: without the metric it may not come
            self.give_up(error)
        finally:
            writer._jwrite = plain
        return start()

    def take(self, progress: str) -> tuple[str | Mapping[str, Any], Mapping[str, Any] | None]:
        """A batch's progress as the application alone would have it, and the measurement by now."""
        try:
            data = loads(progress)
            metrics = data.get("observedMetrics") or {}
            found = {name: metrics.pop(name) for name in list(metrics) if name.startswith(METRIC)}
            if found and not metrics:
                data.pop("observedMetrics", None)
        except Exception as error:
            self.give_up(error)
            return progress, self.traffic.describe({})
        if self.dataset is None:
            return (data if found else progress), self.traffic.describe({})
        try:
            if "addBatch" not in (data.get("durationMs") or {}):
                return data, None
            if not found:
                raise ValueError("Spark did not report the metric")
            self.traffic.add({int(name[len(METRIC) :]): _sample(one) for name, one in found.items()})
            return data, self.traffic.describe(self._partitions(data))
        except Exception as error:
            self.give_up(error)
            return data, self.traffic.describe({})

    def _partitions(self, progress: Mapping[str, Any]) -> dict[int, int]:
        """Of operators that are spread by the key that is counted; of none where Spark counts others."""
        operators = progress.get("stateOperators") or []
        if len(operators) != len(self.points):
            return {}
        return {
            one.operator: int(operators[one.operator]["numShufflePartitions"])
            for one in self.points
            if one.own and "numShufflePartitions" in operators[one.operator]
        }

    def give_up(self, error: Exception) -> None:
        """Measure nothing more, and say why, once."""
        why = (error.message if isinstance(error, StreambankError) else first_line(error)).rstrip(".")
        self.dataset = None
        self.traffic.not_measured(why)
        _log.warning("The keys of query %s are not counted from now on: %s.", self.query, why)
        self.note(NOT_SAMPLED, query=self.query, why=why)


def sampling_of(
    policy: HotKeysPolicy | None, query: str, frame: Any, note: Callable[..., None]
) -> KeySampling | None:
    """What is measured of a query that is about to start; None where nothing is declared or keeps state."""
    if policy is None:
        return None
    failed: Exception | None = None
    salted = None
    try:
        salted = None if policy.hashes else key_samples.salted_partitions(frame.sparkSession)
        dataset, points = key_samples.observed(frame, policy.sample, policy.keys, salted)
    except Exception as error:  # the query must start whatever it is
        dataset, points, failed = None, [SamplePoint(0, "query")], error
    if not points:
        return None
    traffic = Traffic(
        [
            {"operator": one.operator, "name": one.name, "by": list(one.by)}
            | ({} if one.why is None else {"why": one.why})
            for one in points
        ],
        sample=policy.sample,
        window_s=policy.window_s,
        max_keys=policy.max_keys,
        salted=salted,
        clock_s=time.monotonic,
    )
    sampling = KeySampling(query, points, traffic, dataset, note)
    if failed is not None:
        sampling.give_up(failed)
        return sampling
    said = traffic.describe({})["operators"]
    note(SAMPLED if dataset is not None else NOT_SAMPLED, query=query, operators=[
        {name: one[name] for name in ("operator", "name", "by", "why") if name in one} for one in said
    ])  # fmt: skip
    return sampling


def _sample(metric: Mapping[str, Any]) -> BatchSample:
    quantiles = [int(one) for one in metric.get("quantiles") or ()]
    return BatchSample(int(metric["rows"]), int(metric["sampled"]), int(metric["keys"]), quantiles)
