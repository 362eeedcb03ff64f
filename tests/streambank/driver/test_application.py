from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.driver.application import check_application, check_queries
from streambank.driver.launchers.local import LocalLauncher
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.refuses import refuses


@pytest.mark.parametrize("application", ["app.jar", "notebook.ipynb", "app.zip", "app"])
def test_only_pyspark_programs(tmp_path: Path, application: str) -> None:
    (tmp_path / application).touch()
    with refuses(InputError, "not-pyspark"):
        check_application(str(tmp_path / application))


def test_a_missing_application(tmp_path: Path) -> None:
    with refuses(NotFoundError, "no-application"):
        check_application(str(tmp_path / "app.py"))


def test_nothing_is_launched_for_an_application_that_is_not_there(folder: Path) -> None:
    job = declare(folder)
    (folder / "app.py").unlink()
    launcher = fake_launcher(folder)
    with refuses(NotFoundError, "no-application") as refused:
        start_job(job, by=BY, launcher=launcher)
    assert str(folder / "app.py") in refused.value.message
    assert launcher.find(job.records()) == []
    lock = job.records().operation_lock.view()
    assert lock is not None and lock.state == "ended"
    assert job.records().desired() is None, "what cannot be launched is not meant to run"


FIRST = 'first = rows.writeStream.queryName("first").format("parquet").start("/out/first")'
SECOND = 'second = rows.writeStream.format("delta").queryName("second").toTable("second")'
SEVERAL = {
    "one after the other": f"{FIRST}\n{SECOND}\n",
    "in a function": f"def main():\n    {FIRST}\n    {SECOND}\n    first.awaitTermination()\nmain()\n",
    "under one condition": f"if __name__ == '__main__':\n    {FIRST}\n    {SECOND}\n",
    "in a try": f"try:\n    {FIRST}\n    {SECOND}\nfinally:\n    pass\n",
    "with a name that is computed": f"{FIRST}\nb = y.writeStream.queryName(name).start()\n",
    "with computed names": (
        "a = x.writeStream.queryName(f'{env}-a').start()\nrows = y.groupBy(window('at')).count()\n"
        "print(a_note)\nb = rows.writeStream.queryName(f'{env}-b').start()\n"
    ),
    "without names": "a = x.writeStream.start()\nb = y.writeStream.start()\nb.awaitTermination()\n",
    "without names, and a wait for the last": (
        "x.writeStream.start()\ny.writeStream.start().awaitTermination()\n"
    ),
    "by a function": (
        "def begin(x, name):\n    return x.writeStream.queryName(name).start()\n\n"
        "begin(x, 'first')\nbegin(y, 'second')\nspark.streams.awaitAnyTermination()\n"
    ),
    "by a function in a loop": (
        "def begin(name):\n    return x.writeStream.queryName(name).start()\n\n"
        "for name in ('first', 'second'):\n    begin(name)\n"
    ),
    "in a loop": (
        "for name in ('first', 'second'):\n    rows.writeStream.queryName(name).start(f'/out/{name}')\n"
    ),
}
SHOWN = {
    "with a name that is computed": "first, name",
    "with computed names": "f'{env}-a', f'{env}-b'",
    "without names": "one without a name, one without a name",
    "without names, and a wait for the last": "one without a name, one without a name",
    "by a function": "begin(x, 'first'), begin(y, 'second')",
}
ONE = {
    "one with a name": FIRST,
    "one of two": f"if kind == 'first':\n    {FIRST}\nelse:\n    {SECOND}\n",
    "one perhaps": f"{FIRST}\nif kind:\n    {SECOND}\n",
    "in two functions": f"def one():\n    {FIRST}\ndef other():\n    {SECOND}\n",
    "the same once more": f"{FIRST}\nfirst.stop()\n{FIRST}\n",
    "without names, one after the other": "a = x.writeStream.start()\na.stop()\nb = y.writeStream.start()\n",
    "without names, by waiting for any": (
        "x.writeStream.start()\nspark.streams.awaitAnyTermination()\ny.writeStream.start()\n"
    ),
    "waited for in the chain": "x.writeStream.start().awaitTermination()\ny.writeStream.start()\n",
    "waited for by a function": "a = x.writeStream.start()\nwait_for(a)\nb = y.writeStream.start()\n",
    "a name that is computed": (
        f"{FIRST}\nfirst.awaitTermination()\nb = y.writeStream.queryName(name).start()\n"
    ),
    "by a function that waits": (
        "def begin(x):\n    q = x.writeStream.start()\n    q.awaitTermination()\nbegin(x)\nbegin(y)\n"
    ),
    "by a function that may not": (
        "def begin(x):\n    if x:\n        x.writeStream.start()\nbegin(x)\nbegin(y)\n"
    ),
    "in a loop, one by one": "for x in (a, b):\n    x.writeStream.start().awaitTermination()\n",
    "in a loop over what is computed": "for x in sys.argv:\n    a.writeStream.queryName(x).start()\n",
    "in a loop that ends with the first": (
        "for name in ('a', 'b'):\n    rows.writeStream.queryName(name).start()\n    break\n"
    ),
    "in a function that nobody calls": f"def unused():\n    {FIRST}\n    {SECOND}\n{FIRST}\n",
    "in a lambda": f"{FIRST}\nlater = lambda: rows.writeStream.queryName('b').start()\n",
    "not started": f"{FIRST}\nwriter = rows.writeStream.queryName('b')\n",
    "a text": f"{FIRST}\nprint('writeStream.queryName(2).start()')\n",
    "no Python": "writeStream.queryName(",
}


@pytest.mark.parametrize("how", SEVERAL)
def test_several_named_queries_that_a_job_does_not_declare_are_refused_before_one_runs(
    folder: Path, how: str
) -> None:
    job = declare(folder)
    (folder / "app.py").write_text(SEVERAL[how], encoding="utf-8")

    shown = SHOWN.get(how, "first, second")
    with refuses(RefusedError, "undeclared-query", match=re.escape(f"several queries ({shown})")) as refused:
        start_job(job, by=BY, launcher=LocalLauncher())

    assert "`queries` of the job" in refused.value.hint
    assert job.records().lease.view() is None
    check_queries("flights", folder / "app.py", ["first", "second"])


@pytest.mark.parametrize("how", ONE)
def test_what_may_be_one_query_is_left_to_the_runner(tmp_path: Path, how: str) -> None:
    program = tmp_path / "app.py"
    program.write_text(ONE[how], encoding="utf-8")

    check_queries("flights", program, ["main"])
