"""That Spark stops where doctor says so, and goes on as its hint says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.storage import open_store
from tests.support.checkpoint.doctor_inputs import check_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def count(spark: SparkSession, folder: Path) -> dict[int, int]:
    """Run a stateful query over all input, and give its last answer."""
    answer: dict[int, int] = {}

    def keep(frame: DataFrame, batch: int) -> None:
        answer.update({row["k"]: row["count"] for row in frame.collect()})

    counts = spark.readStream.schema("k INT").json(str(folder / "in")).groupBy("k").count()
    writer = counts.writeStream.outputMode("complete").foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "ck")).start().awaitTermination()
    return answer


@pytest.mark.parametrize("left", [pytest.param("state", marks=pytest.mark.storm), "offsets"])
def test_a_first_batch_that_was_never_planned(spark: SparkSession, tmp_path: Path, left: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text("\n".join(json.dumps({"k": number % 3}) for number in range(9)))
    expected = {0: 3, 1: 3, 2: 3}
    assert count(spark, tmp_path) == expected
    checkpoint = tmp_path / "ck"
    for folder in {"offsets", "commits", "state"} - {left}:
        shutil.rmtree(checkpoint / folder)
    if left == "offsets":
        for path in (checkpoint / "offsets").iterdir():
            path.unlink()
        (checkpoint / "offsets/.0.0b7c1f9e-3f0a-4c1e-9a51-4f6f0a4f1f11.tmp").write_text("v1")
    with pytest.raises(Exception, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        count(spark, tmp_path)
    found = {finding.code: finding for finding in check_checkpoint(open_store(checkpoint))}
    assert f"move {left} out of the checkpoint" in found["unplanned-first-batch"].hint
    (checkpoint / left).rename(tmp_path / "aside")
    assert count(spark, tmp_path) == expected
