"""Two restores into one directory, and what one that died has left there."""

from __future__ import annotations

import json

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import ConflictError, RefusedError, StreambankError
from streambank.work.executor import Pace
from tests.support.jobs.simulated_job import SimulatedJob


class TestRestoresAtOnce:
    def test_the_same_directory_belongs_to_one(self, shop: SimulatedJob) -> None:
        shop.run(3)
        taken = shop.take()
        codes: list[str] = []

        def second(step: object) -> None:
            if not codes:
                try:
                    shop.restore(taken.savepoint)
                except StreambankError as error:
                    codes.append(error.code)

        shop.restore(taken.savepoint, pace=Pace(progress=second))
        assert codes == ["restore-in-progress"]
        assert CheckpointReader(shop.open("restored")).closure().batch == 2

    def test_a_note_of_another_host_is_not_judged(self, shop: SimulatedJob) -> None:
        shop.run(3)
        taken = shop.take()
        target = shop.open("restored")
        note = {"owner": {"host": "elsewhere"}, "files": ["metadata"]}
        target.write("metadata", json.dumps({"streambank_restore": note}).encode())
        with pytest.raises(ConflictError, match="may be at work") as caught:
            shop.restore(taken.savepoint)
        assert caught.value.code == "restore-in-progress"

    def test_foreign_files_beside_a_note_are_never_removed(self, shop: SimulatedJob) -> None:
        shop.run(3)
        taken = shop.take()
        target = shop.open("restored")
        note = {"owner": {"host": "elsewhere"}, "files": ["metadata"]}
        target.write("metadata", json.dumps({"streambank_restore": note}).encode())
        target.write("precious", b"1")
        with pytest.raises(RefusedError, match="precious"):
            shop.restore(taken.savepoint)
        assert target.read("precious") == b"1"
