"""What encryption would cost is measured on all bytes that a take stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.encryption import measure, summary
from bench.workloads import LargeFiles, SmallFiles


@pytest.mark.parametrize(
    ("workload", "least_bytes"),
    [
        (LargeFiles(partitions=2, files=2, file_bytes=2_000_000), 8_000_000),
        (SmallFiles(partitions=2, file_bytes=100), 2 * 17 * 100),
    ],
    ids=["large", "small"],
)
def test_every_stored_byte_is_encrypted(
    tmp_path: Path, workload: LargeFiles | SmallFiles, least_bytes: int
) -> None:
    rounds = measure(workload, tmp_path, 2)
    assert len(rounds) == 2
    for one in rounds:
        assert least_bytes <= one.stored_bytes <= least_bytes + 100_000
        assert min(one.take_s, one.encrypt_s, one.encrypt_all_s, one.decrypt_s) > 0
    said = summary("some", rounds)
    assert said["rounds"] == 2
    assert said["stored_mb"] == round(rounds[0].stored_bytes / 1e6, 1)
