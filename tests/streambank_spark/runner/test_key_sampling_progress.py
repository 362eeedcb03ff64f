"""What is left of the metric in a batch's progress: nothing, also after the measurement has failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.sla.skew.traffic import QUANTILES, Traffic
from streambank_spark.private import key_samples
from streambank_spark.private.key_samples import METRIC, SamplePoint
from streambank_spark.runner import key_sampling
from streambank_spark.runner.key_sampling import NOT_SAMPLED, KeySampling

HASH = 4242424242


@pytest.fixture
def noted() -> list[tuple[str, Any]]:
    return []


@pytest.fixture
def sampling(noted: list[tuple[str, Any]]) -> KeySampling:
    traffic = Traffic(
        [{"operator": 0, "name": "Aggregate", "by": ["user"]}],
        sample=1.0,
        window_s=600.0,
        max_keys=5,
        salted=None,
        clock_s=lambda: 0.0,
    )
    dataset = object()
    return KeySampling(
        "main",
        [SamplePoint(0, "Aggregate")],
        traffic,
        dataset,
        lambda kind, **facts: noted.append((kind, facts["why"])),
    )


def progress(batch: int, own: bool = True) -> str:
    """Of a batch whose application observes something itself, or does not."""
    metric = {"rows": 9, "sampled": 9, "keys": 1, "quantiles": [HASH] * QUANTILES}
    metrics = {f"{METRIC}0": metric} | ({"own": {"n": 1}} if own else {})
    return json.dumps({"batchId": batch, "durationMs": {"addBatch": 1}, "observedMetrics": metrics})


def test_hashes_are_taken_out_of_progress_also_after_a_failure(
    sampling: KeySampling, noted: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(HASH) in progress(0), "the control"
    data, measured = sampling.take(progress(0))
    assert str(HASH) not in json.dumps(data)
    assert measured is not None and measured["operators"][0]["top"][0]["share"] == 1.0

    def broken(metric: object) -> None:
        raise RuntimeError("injected fault")

    monkeypatch.setattr(key_sampling, "_sample", broken)
    for batch in (1, 2, 3):  # the one that fails, and those of which nothing is measured
        data, measured = sampling.take(progress(batch))
        assert data == {"batchId": batch, "durationMs": {"addBatch": 1}, "observedMetrics": {"own": {"n": 1}}}
        assert measured is not None and "injected fault" in measured["operators"][0]["why"]
    data, _ = sampling.take(progress(4, own=False))
    assert data == {"batchId": 4, "durationMs": {"addBatch": 1}}, "nor is an empty map left"
    assert [kind for kind, _ in noted] == [NOT_SAMPLED], "it is said once"


def test_a_refusal_of_the_runner_is_not_tried_again(
    sampling: KeySampling, noted: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writer:
        _jwrite = "plain"

    writer, starts = Writer(), []
    monkeypatch.setattr(key_samples, "writer_of", lambda plain, dataset: "sampled")

    def refused() -> None:
        starts.append(writer._jwrite)
        raise RefusedError("Elsewhere.", code="sink-not-redirected", hint="Report it.")

    with pytest.raises(RefusedError):
        sampling.start(writer, refused)
    assert (starts, writer._jwrite, noted) == (["sampled"], "plain", [])

    def failing() -> str:
        starts.append(writer._jwrite)
        if writer._jwrite == "sampled":
            raise RuntimeError("injected fault")
        return "query"

    assert sampling.start(writer, failing) == "query", "the control: what the metric may have caused is"
    assert starts == ["sampled", "sampled", "plain"]
