"""Who is to be told, and when it is judged, as a jobs file declares it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.core.names import check_name
from streambank.declaration.declaration import Job
from streambank.declaration.notify import KINDS, Notify, teller_name
from streambank.declaration.sla import SlaPolicy
from tests.support.jobs.jobs_file import declared_jobs, mistake

JOB = 'repository = "r"\n\n[jobs.a]\napplication = "a.py"\ncheckpoint = "ck"\n[jobs.a.sla]\n'


def sla(folder: Path, more: str, top: str = "", **variables: str) -> SlaPolicy:
    return declared_jobs(folder, JOB + more + top, **variables).job("a").sla


def test_a_notifier_is_a_class_with_arguments(tmp_path: Path) -> None:
    declared = sla(
        tmp_path,
        'schedule = "*/10 * * * *"\n'
        "notify = [\n"
        '  {class = "pkg.mod.Slack", args = {channel = "#${TEAM}", text = "{{ news.message }}"}},\n'
        '  {class = "pkg.Pager", least = "breach"},\n'
        "]\n",
        TEAM="streams",
    )

    assert declared.schedule == "*/10 * * * *"
    assert declared.notify == (
        Notify("pkg.mod.Slack", {"channel": "#streams", "text": "{{ news.message }}"}),
        Notify("pkg.Pager", {}, "breach"),
    )
    assert declared.objectives == {}


def test_it_may_stand_in_tables_of_its_own_and_in_the_defaults(tmp_path: Path) -> None:
    tables = '[[jobs.a.sla.notify]]\nclass = "x.Y"\n[[jobs.a.sla.notify]]\nclass = "x.Y"\nargs = {a = [1]}\n'
    defaults = '[defaults.sla]\nschedule = "@hourly"\nnotify = [{class = "x.Z"}]\n'

    assert [one.path for one in sla(tmp_path, tables).notify] == ["x.Y", "x.Y"]
    assert sla(tmp_path, "", defaults) == SlaPolicy(schedule="@hourly", notify=(Notify("x.Z"),), spread=False)
    assert sla(tmp_path, "notify = []\n", defaults).notify == ()


@pytest.mark.parametrize(
    ("more", "field", "says"),
    [
        ('schedule = "sometimes"', "schedule", "'sometimes' is not a schedule"),
        ('schedule = "*/10 * * *"', "schedule", "not a schedule"),
        ("schedule = 600", "schedule", "a string"),
        ('notify = "x.Y"', "notify", "a list of tables"),
        ('notify = ["x.Y"]', "notify", "a list of tables, and 'x.Y' is not a table"),
        ("notify = [{args = {}}]", "notify.1.class", "missing"),
        ('notify = [{class = "x.Y"}, {class = "Y"}]', "notify.2.class", "not a class with its module"),
        ('notify = [{class = "x.Y()"}]', "notify.1.class", "not a class with its module"),
        ('notify = [{class = "x.Y", arg = {}}]', "notify.1.arg", "no such field"),
        ('notify = [{class = "x.Y", args = 5}]', "notify.1.args", "a table"),
        ('notify = [{class = "x.Y", args = {"a-b" = 1}}]', "notify.1.args", "name of an argument"),
        ('notify = [{class = "x.Y", args = {at = [2026-12-01]}}]', "notify.1.args", "a date"),
        ('notify = [{class = "x.Y", least = "ok"}]', "notify.1.least", "not one of its values"),
        ('notify = [{class = "x.Y"}, {class = "x.Y"}]', "notify", "twice"),
    ],
)
def test_a_mistake_is_named_with_line_and_field(tmp_path: Path, more: str, field: str, says: str) -> None:
    said = mistake(sla, tmp_path, f"{more}\n")
    assert f"line 7, jobs.a.sla.{field}: " in said and says in said


def test_a_mistake_in_the_defaults_is_named_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 8, defaults\.sla\.notify\.1\.class"):
        sla(tmp_path, "", "[defaults.sla]\nnotify = [{class = 'Y'}]\n")


def test_whoever_is_told_elsewhere_or_something_else_is_another_teller() -> None:
    tellers = {
        Notify("x.Slack", {"channel": "#a", "text": "t"}).teller,
        Notify("x.Slack", {"channel": "#b", "text": "t"}).teller,
        Notify("x.Slack", {"channel": "#a", "text": "t"}, "breach").teller,
        Notify("y.Slack", {"channel": "#a", "text": "t"}).teller,
        teller_name("x._Slack", [object()]),
    }

    assert len(tellers) == 5
    assert Notify("x.Slack", {"text": "t", "channel": "#a"}).teller in tellers
    assert teller_name("x._Slack", [object()]) in tellers
    for teller in tellers:
        assert check_name(teller, "teller").startswith("Slack-")


def job(folder: Path, more: str, top: str = "") -> Job:
    return declared_jobs(folder, JOB.removesuffix("[jobs.a.sla]\n") + more + top).job("a")


def test_a_job_says_who_is_alerted_of_what(tmp_path: Path) -> None:
    tables = (
        '[[jobs.a.notify]]\nclass = "x.Pager"\nkinds = ["giving-up", "checkpoint-lost", "giving-up"]\n'
        '[[jobs.a.notify]]\nclass = "x.Chat"\nargs = {text = "{{ message }}"}\n'
    )

    assert job(tmp_path, tables).notify == (
        Notify("x.Pager", kinds=("giving-up", "checkpoint-lost")),
        Notify("x.Chat", {"text": "{{ message }}"}, kinds=KINDS),
    )
    assert job(tmp_path, "", '[[defaults.notify]]\nclass = "x.Y"\n').notify == (Notify("x.Y"),)
    assert job(tmp_path, "notify = []\n", '[[defaults.notify]]\nclass = "x.Y"\n').notify == ()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('notify = [{class = "x.Y", kinds = []}]', "notify.1.kinds: it names no kind"),
        ('notify = [{class = "x.Y", kinds = ["deaths"]}]', "notify.1.kinds: 'deaths' is not a kind"),
        ('notify = [{class = "x.Y", kinds = ["restart"], least = "breach"}]', "notify.1.least: "),
        (
            'notify = [{class = "x.Y"}, {class = "x.Z", kinds = ["restart", "late-restore"]}]',
            "notify.2.kinds: late-restore would never be sent: restore.deadline is not declared",
        ),
        (
            'notify = [{class = "x.Y", kinds = ["replica-failed"]}]',
            "notify.1.kinds: replica-failed would never be sent: the job has no replicas",
        ),
        (
            '[jobs.a.sla]\nschedule = "never"\nnotify = [{class = "x.Y"}]',
            "sla.notify: it would never be sent: the schedule is never",
        ),
        (
            '[jobs.a.restore]\nask = [{class = "x.Y", kinds = ["sla"]}]',
            "restore.ask.1.kinds: there is no such field",
        ),
        ('[jobs.a.restore]\napprovers = ["ann", " "]', "restore.approvers: one of them is empty"),
    ],
)
def test_an_alert_that_nothing_would_send_is_refused(tmp_path: Path, more: str, says: str) -> None:
    assert says in mistake(job, tmp_path, f"{more}\n")


def test_what_can_occur_may_be_named(tmp_path: Path) -> None:
    more = (
        'notify = [{class = "x.Y", kinds = ["late-restore", "replica-failed", "sla"], least = "breach"}]\n'
        '[jobs.a.restore]\ndeadline = "5m"\nask = [{class = "x.Y"}]\napprovers = ["ann", "7"]\n'
        '[jobs.a.replicate]\nto = ["x"]\n'
    )
    found = job(tmp_path, more)
    assert found.notify == (Notify("x.Y", {}, "breach", ("late-restore", "replica-failed", "sla")),)
    assert (found.restore.ask, found.restore.approvers) == ((Notify("x.Y"),), ("ann", "7"))


def test_of_the_defaults_of_all_jobs_one_kind_has_to_be_possible(tmp_path: Path) -> None:
    defaults = '[[defaults.notify]]\nclass = "x.Y"\nkinds = [{}]\n'
    assert job(tmp_path, "", defaults.format('"restart", "replica-failed"')).notify[0].path == "x.Y"
    with pytest.raises(InputError, match="replica-failed would never be sent"):
        job(tmp_path, "", defaults.format('"replica-failed"'))
