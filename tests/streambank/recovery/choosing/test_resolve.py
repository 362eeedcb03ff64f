"""Which savepoint a restore takes where it is asked for the newest that is good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streambank.core.errors import InputError, IntegrityError, NotFoundError
from streambank.core.units import to_json_time
from streambank.recovery.choosing.resolve import choose
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.catalog import glimpse
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import VerifyReport, verify
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.repository.damaged_job import flip, keys
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import Fault, FaultyStore


class TestLatestGood:
    def test_is_the_newest(self, shop: SimulatedJob) -> None:
        shop.run(3).take()
        newest = shop.run(1).take()
        report = shop.restore("latest-good")
        assert (report.plan.savepoint, report.plan.skipped) == (newest.savepoint, ())

    def test_walks_back_past_damaged_ones_and_says_which(self, shop: SimulatedJob) -> None:
        good = shop.run(3).take()
        before = {info.path for info in shop.repository_store.list("packs")}
        damaged = shop.run(2).take()
        for info in list(shop.repository_store.list("packs")):
            if info.path not in before:
                data = bytearray(shop.repository_store.read(info.path))
                data[3] ^= 1
                shop.repository_store.write(info.path, bytes(data))
        listed = shop.run(1).take(batch=2)
        assert listed.already_there
        manifest = f"savepoints/{JOB}/{damaged.savepoint}.json"
        plan = plan_restore(
            RestoreRequest(
                shop.repository,
                "latest-good",
                into=shop.open("restored"),
                sink="rollback",
                opener=quick_store,
            )
        )
        assert plan.savepoint == good.savepoint
        assert [one.savepoint for one in plan.skipped] == [damaged.savepoint]
        assert plan.skipped[0].why
        assert shop.repository_store.exists(manifest)
        report = shop.restore("latest-good", sink="rollback")
        assert report.plan.savepoint == good.savepoint
        # what was found is recorded, so that no one counts on the damaged one
        summaries = {one.savepoint: one for one in shop.repository.manifests(JOB)}
        assert summaries[damaged.savepoint].verified_ok is False
        assert summaries[good.savepoint].verified_ok is True

    def test_a_plan_for_a_person_reads_every_byte_of_a_savepoint_that_is_named(
        self, shop: SimulatedJob
    ) -> None:
        """Before a job is stopped for a restore that can only fail."""
        damaged = shop.run(3).take().savepoint
        state = max(info.path for info in shop.checkpoint.list("state") if info.path.endswith(".delta"))
        saved = shop.checkpoint.read(state)
        (pack,) = (
            info.path
            for info in list(shop.repository_store.list("packs"))
            if saved in shop.repository_store.read(info.path)
        )
        data = shop.repository_store.read(pack)
        shop.repository_store.write(pack, data.replace(saved, saved[:-1] + bytes([saved[-1] ^ 1])))
        request = RestoreRequest(
            shop.repository, damaged, into=shop.open("restored"), sink="rollback", opener=quick_store
        )
        assert plan_restore(request).savepoint == damaged, "sizes alone do not tell"
        with refuses(IntegrityError, "savepoint-damaged"):
            plan_restore(request, whole=True)

    @pytest.mark.parametrize("reads", [[1], [2], range(1, 20)])
    def test_walks_past_what_the_disk_does_not_give_if_it_still_does_not_when_asked_again(
        self, shop: SimulatedJob, reads: Sequence[int]
    ) -> None:
        good = shop.run(3).take()
        before = {info.path for info in shop.repository_store.list("packs")}
        newest = shop.run(2).take()
        (pack,) = {info.path for info in shop.repository_store.list("packs")} - before
        faulty = FaultyStore(
            shop.repository_store,
            *(Fault("error", call, frozenset({"read"}), key=pack) for call in reads),
        )
        chosen = choose(Repository.open(faulty), "latest-good", JOB, record=False)
        assert faulty.fired
        if len(reads) == 1:
            assert (chosen.manifest.savepoint, chosen.skipped) == (newest.savepoint, ())
            return
        assert chosen.manifest.savepoint == good.savepoint
        (skipped,) = chosen.skipped
        assert skipped.savepoint == newest.savepoint
        assert pack in skipped.why

    def test_is_the_newest_by_its_data_not_by_when_it_was_taken(self, shop: SimulatedJob) -> None:
        newest = shop.run(6).take()
        shop.take(batch=2)
        assert shop.restore("latest-good").plan.savepoint == newest.savepoint
        # what goes on from a restore is newer than what it was restored from, whatever its batches are called
        again = LiveCheckpoint(shop.open("second"), query_id=shop.live.query_id, seed=1).run(4)
        from_there = take(TakeRequest(again.store, shop.repository, JOB))
        assert from_there.batch < newest.batch
        assert (
            shop.restore("latest-good", "restored-again", sink="accept").plan.savepoint
            == from_there.savepoint
        )

    def test_none_that_verifies(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take()
        shop.repository_store.write(f"savepoints/{JOB}/{taken.savepoint}.json", b"{}")
        with refuses(NotFoundError, "no-good-savepoint"):
            shop.restore("latest-good")
        assert contents(shop.open("restored")) == {}

    def test_of_several_that_do_not_verify_the_newest_is_told(self, shop: SimulatedJob) -> None:
        shop.run(3).take()
        shop.run(2)
        newest = shop.repository.load(JOB, shop.take().savepoint)
        for info in list(shop.repository_store.list("packs")):
            shop.repository_store.delete(info.path)
        with refuses(
            NotFoundError, "no-good-savepoint", match=f"None of the 2 .*; the newest: .*{newest.batch}: "
        ):
            shop.restore("latest-good")

    def test_one_that_is_expired_meanwhile_is_passed_over(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        older = shop.run(3).take()
        newest = shop.run(2).take()

        def expired(
            repository: Repository, job: str, savepoint: str, *args: Any, **options: Any
        ) -> VerifyReport:
            if savepoint == newest.savepoint:
                repository.store.delete(f"savepoints/{job}/{savepoint}.json")
            return verify(repository, job, savepoint, *args, **options)

        monkeypatch.setattr("streambank.recovery.choosing.resolve.verify", expired)
        report = shop.restore("latest-good", sink="rollback")
        assert report.plan.savepoint == older.savepoint
        assert [one.to_dict() for one in report.plan.skipped] == [
            {"savepoint": newest.savepoint, "why": "It has expired meanwhile."}
        ]

    def test_of_several_jobs_needs_a_name(self, shop: SimulatedJob) -> None:

        shop.run(3).take()
        take(TakeRequest(shop.checkpoint, shop.repository, "other"))
        with refuses(InputError, "which-job"):
            shop.restore("latest-good")
        assert shop.restore("latest-good", job="other").plan.job == "other"


class TestByTime:
    """A person who names a moment decides how far back the job goes: nothing older is just taken."""

    def two(self, shop: SimulatedJob) -> tuple[str, str, list[str]]:
        """An older savepoint, a newer one, and the packs of the newer one."""
        older = shop.run(3).take().savepoint
        before = keys(shop, "packs")
        newer = shop.run(2).take().savepoint
        shop.run(1)
        return older, newer, [key for key in keys(shop, "packs") if key not in before]

    def request(self, shop: SimulatedJob, reference: str) -> RestoreRequest:
        return RestoreRequest(
            shop.repository, reference, into=shop.open("restored"), sink="rollback", opener=quick_store
        )

    @pytest.mark.parametrize("reference", ["2999-01-01", "latest"])
    def test_a_damaged_one_is_named_with_the_next_older_one_that_verifies(
        self, shop: SimulatedJob, reference: str
    ) -> None:
        older, newer, packs = self.two(shop)
        for key in packs:
            flip(shop, key)
        errors = []
        with pytest.raises(IntegrityError) as caught:
            plan_restore(self.request(shop, reference), whole=True)
        errors.append(caught.value)
        with pytest.raises(IntegrityError) as caught:
            restore(self.request(shop, reference))
        errors.append(caught.value)
        for error in errors:
            assert f"The newest older one that verifies is {older} of batch 2" in error.message
            assert "earlier and 2 batches before." in error.message
            assert error.hint.startswith(
                f"To go back that far, give {older} as the savepoint instead of {reference};"
            )
        assert newer in errors[0].message and errors[0].code == "savepoint-damaged"
        assert contents(shop.open("restored")) == {}, "nothing older is restored by itself"
        assert restore(self.request(shop, older)).plan.savepoint == older

    @pytest.mark.parametrize("reference", ["2999-01-01", "latest"])
    def test_one_whose_manifest_is_altered_is_not_passed_over(
        self, shop: SimulatedJob, reference: str
    ) -> None:
        """When it was taken can still be read, so it is the one that is meant."""
        older, newer, _ = self.two(shop)
        path = f"savepoints/{JOB}/{newer}.json"
        altered = shop.repository_store.read(path).replace(b'"offsets/', b'"offsetz/')
        shop.repository_store.write(path, altered)
        with pytest.raises(IntegrityError) as caught:
            plan_restore(self.request(shop, reference))
        assert newer in caught.value.message and f"verifies is {older} of" in caught.value.message

    @pytest.mark.parametrize("reference", ["2999-01-01", "latest"])
    def test_one_whose_manifest_says_nothing_may_be_the_one_that_is_meant(
        self, shop: SimulatedJob, reference: str
    ) -> None:
        older, newer, _ = self.two(shop)
        shop.repository_store.write(f"savepoints/{JOB}/{newer}.json", b"{}")
        with refuses(IntegrityError, "savepoint-damaged") as caught:
            plan_restore(self.request(shop, reference))
        assert newer in caught.value.message and f"verifies is {older} of" in caught.value.message
        assert f"give {older} as the savepoint" in caught.value.hint

    def test_one_that_is_expired_during_the_look_is_passed_over(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        older, newer, _ = self.two(shop)
        shop.repository_store.write(f"savepoints/{JOB}/{newer}.json", b"{}")
        looked = list[str]()

        def expired_meanwhile(store: Store, job: str, savepoint: str) -> Manifest | None:
            store.delete(f"savepoints/{job}/{savepoint}.json")
            looked.append(savepoint)
            return glimpse(store, job, savepoint)

        monkeypatch.setattr("streambank.recovery.choosing.older.glimpse", expired_meanwhile)
        assert plan_restore(self.request(shop, "latest")).savepoint == older
        assert looked == [newer], "it went during the look"

    def test_one_that_seems_younger_than_the_moment_is_only_said(self, shop: SimulatedJob) -> None:
        older, newer, _ = self.two(shop)
        last = shop.take().savepoint
        shop.repository_store.write(f"savepoints/{JOB}/{last}.json", b"{}")
        moment = to_json_time(shop.repository.load(JOB, older).taken_at)
        plan = plan_restore(self.request(shop, moment))
        assert plan.savepoint == older != newer
        assert [one.savepoint for one in plan.skipped] == [last]

    def test_where_no_older_one_verifies_the_error_stays_as_it_was(self, shop: SimulatedJob) -> None:
        only = shop.run(3).take().savepoint
        for key in keys(shop, "packs"):
            flip(shop, key)
        with pytest.raises(IntegrityError) as caught:
            plan_restore(self.request(shop, "2999-01-01"), whole=True)
        assert only in caught.value.message and "older one" not in caught.value.message
