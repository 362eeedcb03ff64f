"""A running job that is upgraded, and the code that it is upgraded to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.cli import streambank
from tests.support.jobs.release_story import APPLICATION, NAME, ReleaseStory

SOURCE = 'rows = rows.coalesce(1).withColumn("n", udf(nap, "int")("n")).dropDuplicates(["k"])'
NEW = APPLICATION.replace(
    SOURCE, SOURCE + '.withColumn("version", __import__("pyspark").sql.functions.lit(2))'
)
"""The same, with a column more in its output."""
OTHER_KEYS = APPLICATION.replace('dropDuplicates(["k"])', 'dropDuplicates(["k", "n"])')
"""Its state has other keys."""
DIES = NEW.replace(
    "writer.start().awaitTermination()",
    "query, seen = writer.start(), set()\n"
    "while len(seen) < 3:\n"
    "    said = query.lastProgress\n"
    "    if said and said['numInputRows']:\n"
    "        seen.add(said['batchId'])\n"
    "    time.sleep(0.05)\n"
    "raise SystemExit('the new code gives up')",
)
"""It gives up after a few batches, which is more than a rehearsal sees of one query."""
KILLED = """
import os, sys
from streambank.declaration.load import load_jobs
from streambank.upgrade import plan, upgrade as module
choose = module.choose_code
def choose_and_die(control, declared, code, **more):
    is_new = code.identity == declared.identity
    if is_new and sys.argv[2] == "before":
        os.kill(os.getpid(), 9)
    choose(control, declared, code, **more)
    if is_new and sys.argv[2] == "after":
        os.kill(os.getpid(), 9)
module.choose_code = choose_and_die
module.upgrade(plan.UpgradeRequest(load_jobs(sys.argv[1]).job("orders"), watch_s=5.0, by={"user": "killed"}))
"""
"""An upgrade that is killed between the stop of the old code and the start of the new."""


@contextmanager
def fed(story: ReleaseStory, every_s: float = 2.0) -> Iterator[None]:
    """Let files arrive all the while, one every few seconds."""
    over = threading.Event()

    def feed() -> None:
        while not over.wait(every_s):
            story.feed()

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def replace_code(story: ReleaseStory, application: str) -> None:
    """Deploy other code, as git does: the file of the running job changes."""
    assert application != (story.folder / "app.py").read_text()
    (story.folder / "app.py").write_text(application, encoding="utf-8")


def upgrade(story: ReleaseStory, *options: str | int | Path, code: int = 0) -> Any:
    answer = streambank("upgrade", NAME, "--jobs", story.jobs, "--json", *options)
    assert answer.code == code, f"{answer.out}{answer.err}{story.log()}"
    return answer.document


def versions(story: ReleaseStory) -> set[int | None]:
    """The versions of the code that wrote the rows of the output."""
    return {row.get("version") for row in story.written()}
