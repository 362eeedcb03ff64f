"""Places of jobs, sites and copies that must not lie in one another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.streambank.declaration.places.test_copies import COPY, JOB, declared
from tests.support.jobs.jobs_file import mistake

OTHER = '[jobs.b]\napplication = "b.py"\ncheckpoint = "file:///ck/b"\n'
DELTA = '[[jobs.orders.sinks]]\nkind = "delta"\ntable = "file:///lake/orders"\n'
STANDBY = """[jobs.orders.standby]
checkpoint = "file:///there/ck"
repository = "file:///there/s"
outputs = { "file:///lake/plain" = "file:///there/out" }
[jobs.orders.replicate]
to = ["file:///there/s"]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{OTHER}replicate.to = ["file:///ck/orders/r"]', "the replica .* the checkpoint .* of job orders"),
        (f'{OTHER}drill.scratch = "file:///ck/b/d"', "the scratch of drills .* the checkpoint .* of job b"),
        (f'{OTHER}state.work = "file:///ck/orders.g0002/w"', "the staged state .* the checkpoint"),
        (f'{OTHER}control = "file:///ck/orders/c"', "the control location .* the checkpoint"),
        (f'{OTHER}replicate.to = ["file:///lake/orders/r"]\n{DELTA}', "the replica .* the table"),
        (f'{OTHER}drill.scratch = "file:///lake/orders"\n{DELTA}', "the scratch of drills .* the table"),
        (f'{OTHER}state.work = "file:///out/w"\n{COPY}', "the staged state .* the output"),
        (f'{OTHER}state.work = "file:///lake/plain/w"\n{STANDBY}', "the staged state .* the output"),
        (
            f'{OTHER}state.work = "file:///there/out/w"\n{STANDBY}',
            "the staged state .* the output .* the standby",
        ),
        (f"{DELTA.replace('/lake/orders', '/ck')}", "the checkpoint .* the table"),
        (f"{DELTA.replace('/lake/orders', '/ck/orders')}", "the table .* the checkpoint"),
        (f"{DELTA.replace('/lake/orders', '/ck/orders/out')}", "the table .* the checkpoint"),
    ],
)
def test_nothing_lies_in_a_checkpoint_or_in_an_output(tmp_path: Path, text: str, said: str) -> None:
    assert re.search(said.replace(" .* ", " .* is inside ", 1), mistake(declared, tmp_path, text))


def test_a_checkpoint_in_an_output_of_files_is_left_to_doctor(tmp_path: Path) -> None:
    inside = OTHER.replace("/ck/b", "/out/ck")
    assert "b" in declared(tmp_path, f"{inside}{COPY}").jobs


def test_a_repository_in_a_checkpoint(tmp_path: Path) -> None:
    said = mistake(declared, tmp_path, "", JOB.replace('"file:///s"', '"file:///ck/orders/s"'))
    assert re.search("the repository .* is inside the checkpoint", said)


def test_what_a_reader_passes_over_may_lie_in_an_output(tmp_path: Path) -> None:
    """Delta's own habit: the checkpoint in `_checkpoints` of the table, which its VACUUM leaves alone."""
    inside = f"{OTHER.replace('/ck/b', '/lake/orders/_checkpoints/b')}{DELTA}"
    assert "b" in declared(tmp_path, inside).jobs


def test_jobs_may_write_to_one_table(tmp_path: Path) -> None:
    both = f"{DELTA}{OTHER}{DELTA.replace('jobs.orders.sinks', 'jobs.b.sinks')}"
    assert len(declared(tmp_path, both).jobs) == 2
