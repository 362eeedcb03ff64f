"""What an approval offers, for every way in which things may stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streambank.core.choices import SinkChoice
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.core.units import utc_now
from streambank.recovery.approval import (
    Choice,
    check_still_so,
    choices_of,
    chosen_of,
    newest_of,
    obstacles,
    shown_choices,
    subject_of,
)
from streambank.recovery.plan import RestorePlan
from streambank.recovery.sinks.reached import Reached
from streambank.recovery.together import TogetherPlan

ALIVE = RefusedError("It lives.", code="lease-held")
AHEAD = RefusedError("It is ahead.", code="sink-would-lose-rows")
STUCK = RefusedError("It lacks files.", code="sink-cannot-roll-back")
OPEN = RefusedError("It is not guarded, and got more.", code="sink-not-guarded")
GONE = RefusedError("Records are gone.", code="source-would-lose-records")
SILENT = StorageError("Kafka does not answer.", code="source-not-known")
FILE = {"path": "/out/files", "guarded": True, "safe": False, "later_files": 4, "later_rows": 1200}
SOCKET = RefusedError("Source 0 cannot be repeated.", code="source-cannot-repeat")
LEVEL = {"path": "level", "guarded": False, "safe": True, "harm": "not-known", "newest_batch": 2}
CONSOLE = {"path": "console", "guarded": False, "safe": True, "harm": "none", "newest_batch": 2}
LEDGER = {"path": "ledger", "guarded": False, "safe": False, "newest_batch": 10}
STATEFUL = {**FILE, "stateful": True, "standing": "ahead"}
NO_SINK = {**LEDGER, "kind": "not-known", "path": "not-known"}
KAFKA = {"path": "kafka://broker/topic", "guarded": False, "safe": False, "repeated_records": 7}


def plan(
    *others: StreambankError,
    sink: str = "refuse",
    sinks: tuple[dict[str, Any], ...] = (FILE,),
    refuse: tuple[StreambankError, ...] = (),
    rollback: tuple[StreambankError, ...] = (),
    accept: tuple[StreambankError, ...] = (),
    source: StreambankError | None = None,
    reached: Reached | None = None,
    mixed: dict[str, SinkChoice] | None = None,
) -> RestorePlan:
    """A plan with what the sinks and the source have against each choice."""
    return RestorePlan(
        savepoint="b000002-x",
        job="orders",
        batch=2,
        query_id="q",
        taken_at=utc_now(),
        age_s=360.0,
        files=1,
        bytes=1,
        rows=1,
        note="",
        location="file:/c.g0002",
        generation=2,
        mode="no-claim",
        sink=sink,  # type: ignore[arg-type]  # one of the choices
        sinks=sinks,
        mixed_sinks=mixed or {},
        reached=reached,
        source="refuse",
        sources=(),
        replays=(),
        repository="file:/r",
        passed_over=(),
        watermark_ms=None,
        read_again=None,
        estimates=(),
        next=(),
        as_of=None,
        skipped=(),
        refusals=(),
        other_refusals=others,
        sink_refusals={"refuse": refuse, "rollback": rollback, "accept": accept},
        source_refusals={"refuse": (source,) if source else (), "accept": ()},
        warnings=(),
    )


def alone(found: RestorePlan) -> TogetherPlan:
    """The plan of a set of one."""
    return TogetherPlan({"main": found})


def changed(approved: Choice, now: TogetherPlan) -> str:
    """What has changed since a choice was approved; empty for nothing."""
    try:
        check_still_so(approved, now)
    except RefusedError as error:
        assert error.code == "approval-outdated"
        return error.message.partition("things have changed since the plan was shown: ")[2]
    return ""


@pytest.mark.parametrize(
    ("found", "may_stop", "labels"),
    [
        (plan(), False, ["Approve"]),
        (plan(sink="rollback", refuse=(AHEAD,)), False, ["Approve"]),
        (
            plan(refuse=(AHEAD,)),
            False,
            ["Restore and set later output aside", "Restore and leave later output"],
        ),
        (plan(refuse=(AHEAD,), rollback=(STUCK,)), False, ["Restore and leave later output"]),
        (
            plan(sink="rollback", refuse=(AHEAD,), rollback=(STUCK,)),
            False,
            ["Restore and leave later output"],
        ),
        (plan(ALIVE, sinks=()), False, ["Stop the job and restore"]),
        (plan(ALIVE, sinks=()), True, ["Approve"]),
        (
            plan(ALIVE, refuse=(AHEAD,)),
            False,
            [
                "Stop the job, restore and set later output aside",
                "Stop the job, restore and leave later output",
            ],
        ),
        # Nothing is ahead yet, but the job writes on until it is stopped.
        (
            plan(ALIVE),
            True,
            [
                "Stop the job, restore and set later output aside",
                "Stop the job, restore and leave later output",
            ],
        ),
        # What it writes to Kafka until then cannot be taken back.
        (plan(ALIVE, sinks=(FILE, KAFKA)), False, ["Stop the job, restore and leave later output"]),
        (plan(ALIVE, sink="rollback", refuse=(AHEAD,)), False, ["Stop the job and restore"]),
        # The form's rollback would be refused after one more batch of a sink that is not guarded.
        (
            plan(ALIVE, sink="rollback", sinks=(FILE, LEVEL)),
            True,
            ["Stop the job, restore and leave later output"],
        ),
        (plan(ALIVE, sink="rollback", sinks=(FILE, CONSOLE)), False, ["Stop the job and restore"]),
        # A source that cannot be repeated is refused where the query stands, too.
        (
            plan(ALIVE, sinks=(), source=SOCKET),
            True,
            ["Stop the job, restore and go on without the input that cannot be repeated"],
        ),
        (plan(source=GONE), False, ["Restore and go on without the lost input"]),
        (plan(source=SILENT), False, ["Restore and go on without knowing the input"]),
        (plan(source=SOCKET), False, ["Restore and go on without the input that cannot be repeated"]),
        (
            plan(ALIVE, refuse=(AHEAD,), rollback=(STUCK,), source=GONE),
            False,
            ["Stop the job, restore, leave later output and go on without the lost input"],
        ),
    ],
)
def test_only_what_is_possible_is_offered(found: RestorePlan, may_stop: bool, labels: list[str]) -> None:
    assert obstacles(alone(found)) == []
    offered = choices_of(alone(found), may_stop=may_stop)
    assert [one.label for one in offered] == labels
    for one in offered:
        assert one.sink in found.possible_choices.sink
        assert one.source in found.possible_choices.source
        assert one.stop == (ALIVE in found.other_refusals)
        assert chosen_of(one.to_dict()) == one


def test_a_choice_knows_what_it_resolves() -> None:
    (first, _) = choices_of(alone(plan(refuse=(AHEAD, AHEAD))), may_stop=False)
    assert first.resolves_by_query == {"main": ("sink-would-lose-rows",)}
    (only,) = choices_of(alone(plan(source=GONE)), may_stop=False)
    assert only.resolves_by_query == {"main": ("source-would-lose-records",)}
    (nothing,) = choices_of(alone(plan()), may_stop=False)
    assert nothing.resolves_by_query == {"main": ()}


@pytest.mark.parametrize(
    ("found", "newest"),
    [
        (plan(sinks=()), 2),
        (plan(sinks=({**FILE, "sink_batch": 7},)), 7),
        (plan(sinks=({**FILE, "sink_batch": 7, "new_path": "file:/new"},)), 2),
        (plan(sinks=({**FILE, "sink_batch": None}, LEDGER)), 10),
        (plan(sinks=(KAFKA,), reached=Reached(committed=3, planned=4)), 4),
        (plan(sinks=(), reached=Reached(not_known="Its records are gone.")), 2),
    ],
)
def test_a_choice_knows_the_newest_batch_that_was_shown(found: RestorePlan, newest: int) -> None:
    assert newest_of(found) == newest
    (choice, *_) = choices_of(alone(found), may_stop=False)
    assert choice.newest_by_query == {"main": newest}
    assert chosen_of({**choice.to_dict(), "of_another_version": 1}) == choice


def test_what_no_choice_resolves_is_an_obstacle() -> None:
    full = RefusedError("Something is there.", code="target-not-empty")
    assert obstacles(alone(plan(ALIVE, full))) == [full]
    assert obstacles(alone(plan(refuse=(AHEAD,), rollback=(STUCK,), accept=(STUCK,)))) == [AHEAD]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (plan(sinks=()), ""),
        (plan(refuse=(AHEAD,)), " 1,200 rows were written since."),
        (plan(sink="rollback", refuse=(AHEAD,)), " 1,200 rows are set aside."),
        (plan(sink="accept", refuse=(AHEAD,)), " 1,200 rows are left."),
        (plan(refuse=(AHEAD,), sinks=(FILE, KAFKA)), " 1,207 rows were written since."),
        (plan(refuse=(AHEAD,), sinks=({**FILE, "later_rows": None},)), " 4 files were written since."),
        (plan(ALIVE, sinks=()), " It runs, and will be stopped."),
        (plan(sinks=(), source=GONE), " Input is lost."),
        (plan(sinks=(), source=SILENT), " It is not known whether its input is still there."),
        (plan(sinks=(), source=SOCKET), " Input cannot be repeated."),
        (plan(sinks=(LEDGER,)), " Batches 3 to 10 were sent to a sink that is not guarded."),
        (plan(sinks=({**LEDGER, "newest_batch": 3},)), " Batch 3 was sent to a sink that is not guarded."),
        (plan(sinks=({**LEDGER, "safe": True, "newest_batch": 2},)), ""),
        (
            plan(sinks=({**LEDGER, "safe": None, "newest_batch": None},)),
            " It is not known whether a sink that is not guarded is ahead.",
        ),
        (plan(sinks=(NO_SINK,)), " No sink of the query is known, and batches 3 to 10 were computed since."),
        (
            plan(sinks=({**NO_SINK, "safe": None, "newest_batch": None},)),
            " No sink of the query is known, and it may have gone on since.",
        ),
    ],
)
def test_the_question_says_what_it_is_about(found: RestorePlan, says: str) -> None:
    offered = choices_of(alone(found), may_stop=False)
    assert subject_of(alone(found), offered) == f"Restore orders to batch 2, 6 min old?{says}"


def test_the_choices_are_explained_where_there_are_some() -> None:
    assert shown_choices(choices_of(alone(plan()), may_stop=False)) == ""
    assert shown_choices(choices_of(alone(plan(ALIVE, sinks=())), may_stop=True)) == ""
    shown = shown_choices(choices_of(alone(plan(ALIVE, refuse=(AHEAD,))), may_stop=False))
    assert "- **Stop the job, restore and set later output aside**: The job is stopped" in shown
    assert "Files of later batches are set aside" in shown
    assert shown.endswith("- **Reject**: Nothing happens.\n")


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        (plan(refuse=(AHEAD,), sinks=(STATEFUL,)), [False, True]),
        (plan(ALIVE, refuse=(AHEAD,), sinks=({**STATEFUL, "standing": "even"},)), [False, True]),
        (plan(refuse=(AHEAD,), sinks=({**STATEFUL, "stateful": False},)), [False, False]),
        (plan(refuse=(AHEAD,), sinks=({**STATEFUL, "standing": "behind"},)), [False, False]),
        (plan(ALIVE, sink="accept", sinks=({**STATEFUL, "standing": "even"},)), [True]),
        (
            plan(
                refuse=(AHEAD,), rollback=(STUCK,), mixed={str(STATEFUL["path"]): "accept"}, sinks=(STATEFUL,)
            ),
            [True, True],
        ),
    ],
)
def test_a_choice_that_ends_in_a_query_that_fails_says_so(found: RestorePlan, broken: list[bool]) -> None:
    offered = choices_of(alone(found), may_stop=True)
    assert ["CANNOT_LOAD_STATE_STORE" in one.means for one in offered] == broken
    assert shown_choices(offered).count("fails at each start") == sum(broken)


def test_what_a_template_gives_where_nobody_was_asked_is_no_choice() -> None:
    assert chosen_of(None) is None
    assert chosen_of("None") is None


def test_a_mode_that_knows_no_rollback_offers_none() -> None:
    fork = replace(plan(refuse=(AHEAD,)), mode="fork", sink_refusals={"refuse": (AHEAD,), "accept": ()})
    assert [one.sink for one in choices_of(alone(fork), may_stop=False)] == ["accept"]


def test_a_fork_leaves_its_query_to_go_on_and_says_where_it_goes() -> None:
    fork = replace(
        plan(sinks=({**FILE, "sink_batch": 7}, LEDGER), refuse=(AHEAD,), source=GONE),
        mode="fork",
        generation=None,
        location="file:/trial",
        sink_refusals={"refuse": (AHEAD,), "accept": ()},
    )
    (choice,) = choices_of(alone(fork), may_stop=False)
    assert (choice.label, choice.stop, choice.newest_by_query) == (
        "Restore, leave later output and go on without the lost input", False, {"main": 2},
    )  # fmt: skip
    assert subject_of(alone(fork), [choice]) == (
        "Restore batch 2 of orders, 6 min old, into file:/trial? Input is lost."
    )


def test_no_job_is_stopped_for_a_directory() -> None:
    assert obstacles(alone(replace(plan(ALIVE), generation=None))) == [ALIVE]


def test_sinks_of_both_kinds_offer_a_choice_for_each() -> None:
    found = plan(
        refuse=(AHEAD,), rollback=(STUCK,), sinks=(FILE, KAFKA), mixed={"kafka://broker/topic": "accept"}
    )
    mixed, accept = choices_of(alone(found), may_stop=False)
    assert mixed.label == "Restore, roll back the output that can be, and leave the rest"
    assert (mixed.sink, mixed.sink_of) == ("rollback", {"kafka://broker/topic": "accept"})
    assert mixed.means == "Left as they are: kafka://broker/topic."
    assert accept.sink == "accept" and not accept.sink_of
    assert chosen_of(mixed.to_dict()) == mixed


class TestAllQueries:
    """All queries of a job as one: each choice is of the whole set, and bound to what was shown."""

    def pair(self, hours: RestorePlan, users: RestorePlan) -> TogetherPlan:
        plans = {
            "hours": replace(hours, job="flights/hours"),
            "users": replace(users, job="flights/users", savepoint="b000007-y", batch=7),
        }
        return TogetherPlan(plans)

    def test_a_choice_names_the_savepoint_of_each_and_how_far_it_got(self) -> None:
        plans = self.pair(plan(), plan(refuse=(AHEAD,), reached=Reached(9, 9, "")))
        found = choices_of(plans, may_stop=False)
        assert [one.label for one in found] == [
            "Restore and set later output aside",
            "Restore and leave later output",
        ]
        for one in found:
            assert one.savepoints == {"hours": "b000002-x", "users": "b000007-y"}
            assert one.newest_by_query == {"hours": 2, "users": 9}
            assert one.resolves_by_query == {"hours": (), "users": ("sink-would-lose-rows",)}
            assert chosen_of(one.to_dict()) == one, "as it comes back from an approval"

    def test_what_one_query_refuses_all_refuse(self) -> None:
        plans = self.pair(plan(refuse=(AHEAD,), rollback=(STUCK,)), plan())
        assert [one.sink for one in choices_of(plans, may_stop=False)] == ["accept"], "nothing goes back"
        gap = RefusedError("Its log has a gap.", code="sink-log-gap")
        plans = self.pair(plan(refuse=(AHEAD,), rollback=(STUCK,), accept=(gap,)), plan(refuse=(AHEAD,)))
        assert obstacles(plans) == [AHEAD]
        mixed: dict[str, SinkChoice] = {"/out/users": "accept"}
        plans = self.pair(plan(refuse=(AHEAD,)), plan(refuse=(AHEAD,), rollback=(STUCK,), mixed=mixed))
        first, second = choices_of(plans, may_stop=False)
        assert (first.sink, first.sink_of) == ("rollback", mixed) and second.sink == "accept"
        neither = self.pair(plan(ALIVE, STUCK), plan(ALIVE))
        assert [one.message for one in obstacles(neither)] == [STUCK.message]

    @pytest.mark.parametrize("form", ["refuse", "rollback"])
    @pytest.mark.parametrize(
        ("hours", "users", "left"),
        [
            (plan(refuse=(AHEAD,)), plan(refuse=(OPEN,), rollback=(OPEN,), sinks=(LEDGER,)), {"ledger"}),
            (
                plan(refuse=(AHEAD,)),
                plan(refuse=(AHEAD,), rollback=(STUCK,), sinks=({**FILE, "path": "/out/users"}, CONSOLE)),
                {"/out/users"},
            ),
            # Neither is ahead yet, but both write on until they are stopped.
            (plan(ALIVE), plan(ALIVE, sinks=(LEVEL, CONSOLE)), {"level"}),
            (plan(ALIVE), plan(ALIVE, sinks=({**FILE, "path": "/out/users"}, KAFKA)), {KAFKA["path"]}),
            (
                plan(ALIVE, refuse=(AHEAD,)),
                plan(refuse=(OPEN,), rollback=(OPEN,), sinks=(LEDGER,)),
                {"ledger"},
            ),
        ],
    )
    def test_what_one_query_cannot_roll_back_another_may(
        self, hours: RestorePlan, users: RestorePlan, left: set[str], form: SinkChoice
    ) -> None:
        plans = self.pair(replace(hours, sink=form), replace(users, sink=form))
        assert obstacles(plans) == []
        first, second = choices_of(plans, may_stop=True)
        assert "roll back the output that can be, and leave the rest" in first.label
        assert (first.sink, first.sink_of) == ("rollback", dict.fromkeys(left, "accept"))
        assert (second.sink, second.sink_of) == ("accept", {})
        assert chosen_of(first.to_dict()) == first

    def test_one_query_may_be_rolled_back_that_another_choice_would_break(self) -> None:
        """What has a gap cannot be left, and what is not guarded cannot be rolled back."""
        gap = RefusedError("Its log has a gap.", code="sink-log-gap")
        plans = self.pair(
            plan(refuse=(AHEAD,), accept=(gap,)), plan(refuse=(OPEN,), rollback=(OPEN,), sinks=(LEDGER,))
        )
        assert obstacles(plans) == []
        (only,) = choices_of(plans, may_stop=False)
        assert (only.sink, only.sink_of) == ("rollback", {"ledger": "accept"})

    def test_a_choice_knows_what_it_resolves_of_which_query(self) -> None:
        (only,) = choices_of(self.pair(plan(source=GONE), plan(source=SILENT)), may_stop=False)
        assert only.resolves_by_query == {"hours": (GONE.code,), "users": (SILENT.code,)}

    def test_what_is_accepted_of_one_query_is_not_accepted_of_another(self) -> None:
        (choice,) = choices_of(self.pair(plan(source=GONE), plan()), may_stop=False)
        assert not changed(choice, self.pair(plan(source=GONE), plan()))
        later = self.pair(plan(source=GONE), plan(source=GONE))
        assert changed(choice, later) == GONE.message
        assert not changed(choice, replace(later, done=("users",)))
        before = chosen_of({**choice.to_dict(), "resolves_by_query": {}})
        assert before is not None and changed(before, later) == GONE.message

    @pytest.mark.parametrize("alive", [(), (ALIVE,)])
    def test_no_more_files_are_missing_than_was_shown(self, alive: tuple[StreambankError, ...]) -> None:
        def lacking(files: int) -> RestorePlan:
            asked = plan(*alive, sink="rollback-accept", sinks=({**FILE, "missing_files": files},))
            return replace(asked, sink_refusals={"rollback-accept": ()})

        def several(files: int) -> TogetherPlan:
            return self.pair(plan(sinks=(CONSOLE,)), lacking(files))

        (one,) = choices_of(alone(lacking(1)), may_stop=True)
        assert one.missing == {FILE["path"]: 1} and chosen_of(one.to_dict()) == one
        for now in (0, 1):
            assert not changed(one, alone(lacking(now)))
        assert "lacks 1,000 data files, and the plan showed 1" in changed(one, alone(lacking(1000)))
        newest = {"hours": 2, "users": 7}
        whole = replace(one, newest_by_query=newest, resolves_by_query={"hours": (), "users": ()})
        assert not changed(whole, several(1))
        assert changed(whole, several(2))
        before = chosen_of({name: value for name, value in one.to_dict().items() if name != "missing"})
        assert before is not None and not changed(before, alone(lacking(2)))

    def test_no_more_output_is_given_up_than_was_shown(self) -> None:
        def at(batch: int, *others: StreambankError) -> TogetherPlan:
            return self.pair(plan(*others), plan(*others, reached=Reached(batch, batch, "")))

        (down,) = choices_of(at(9), may_stop=False)
        assert not changed(down, at(9))
        assert changed(down, at(10)) == (
            "Query flights/users has gone on to batch 10, but the plan ended at batch 9."
        )
        assert not changed(down, replace(at(10), done=("users",)))
        assert changed(replace(down, newest_by_query={}), at(9)), "nobody knows what was shown"
        (alive, _) = choices_of(at(9, ALIVE), may_stop=True)
        assert not changed(alive, at(10)), "it went on until it was stopped, which the choice has settled"
        assert changed(replace(alive, newest_by_query={}), at(10)), (
            "nor of one that another version has shown"
        )

    def test_the_input_of_any_of_them_is_asked_about(self) -> None:
        plans = self.pair(plan(source=GONE), plan())
        (only,) = choices_of(plans, may_stop=False)
        assert only.source == "accept"

    def test_the_question_is_of_all(self) -> None:
        plans = self.pair(plan(ALIVE, refuse=(AHEAD,)), plan(ALIVE, refuse=(AHEAD,), sinks=(LEDGER,)))
        asked = subject_of(plans, choices_of(plans, may_stop=False))
        assert asked == (
            "Restore all 2 queries of flights as one, to savepoints that are up to 6 min old? It runs, and "
            "will be stopped. 1,200 rows were written since. users: Batches 8 to 10 were sent to a sink that "
            "is not guarded."
        )
