from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from tests.support.jobs.jobs_file import declared_jobs, mistake
from tests.support.refuses import refuses

HEAD = """
repository = "east/savepoints"
[jobs.orders]
application = "app.py"
args = ["--out", "east"]
checkpoint = "east/checkpoint"
queries = ["a", "b"]
spark = {"spark.ui.enabled" = false, "x" = "primary"}
env = ["TOKEN"]
[jobs.orders.drill]
scratch = "east/scratch"
[jobs.orders.replicate]
to = ["west/savepoints", "south/savepoints"]
"""
STANDBY = """
[jobs.orders.standby]
checkpoint = "west/checkpoint"
repository = "west/savepoints"
"""


def load(folder: Path, text: str) -> Job:
    return declared_jobs(folder, text).job("orders")


def test_a_site_is_the_same_job_with_places_of_its_own(tmp_path: Path) -> None:
    more = 'args = ["--out", "west"]\nmaster = "spark://west:7077"\nspark = {x = "standby"}\n'
    job = load(tmp_path, f'{HEAD}{STANDBY}{more}outputs = {{"east/out" = "west/out"}}\n')
    there = job.at_site("standby")
    root = f"file://{tmp_path}"
    assert (job.site, there.site, there.name) == ("primary", "standby", "orders")
    assert there.queries == {name: f"{root}/west/checkpoint/{name}" for name in ("a", "b")}
    assert (there.repository, there.control) == (f"{root}/west/savepoints", f"{root}/west/savepoints.control")
    assert there.replicate.to == (f"{root}/east/savepoints", f"{root}/south/savepoints")
    assert (there.args, there.env, there.master) == (("--out", "west"), ("TOKEN",), "spark://west:7077")
    assert there.spark == {"spark.ui.enabled": "false", "x": "standby"}
    assert there.launch.on == "standalone"
    assert there.drill.scratch is None, "that is a place of the primary"
    assert job.standby is not None and job.standby.outputs == {f"{root}/east/out": f"{root}/west/out"}
    assert there.other_site == job and job.other_site == there
    assert there.at_site("primary") is job and there.at_site("standby") == there


def test_a_job_at_a_site_has_a_name(tmp_path: Path) -> None:
    job = load(tmp_path, HEAD + STANDBY)
    declared = load_jobs(tmp_path / "streaming_jobs.toml")
    assert declared.job("orders@standby") == job.at_site("standby")
    assert declared.job("orders@primary") == job
    with refuses(InputError, "no-such-site"):
        declared.job("orders@moon")
    with refuses(InputError, "no-standby"):
        load(tmp_path, HEAD).at_site("standby")
    assert load(tmp_path, HEAD).other_site is None


@pytest.mark.parametrize(
    ("standby", "field", "what"),
    [
        ('repository = "west/savepoints"', "standby.checkpoint", "missing"),
        ('checkpoint = "west/checkpoint"', "standby.repository", "missing"),
        ('checkpoint = "east/checkpoint/x"\nrepository = "west/savepoints"', "standby.checkpoint", "apart"),
        ('checkpoint = "west/ck"\nrepository = "east/savepoints/x"', "standby.repository", "apart"),
        (
            'checkpoint = "west/ck"\nrepository = "west/savepoints"\ncontrol = "east/savepoints.control"',
            "standby.control",
            "apart",
        ),
        (
            'checkpoint = "west"\nrepository = "west/savepoints"',
            "standby.repository",
            "inside the standby's checkpoint",
        ),
        ('checkpoint = "west/ck"\nrepository = "north/savepoints"', "standby.repository", "replicate.to"),
        ('checkpoint = "west/ck"\nrepository = "s3://west"', "standby.control", "whole bucket"),
        (
            'checkpoint = "west/ck"\nrepository = "west/savepoints"\noutputs = {"o" = "o/x"}',
            "standby.outputs",
            "not apart",
        ),
        (
            'checkpoint = "west/ck"\nrepository = "west/savepoints"\nenv = ["AIRFLOW_HOME"]',
            "standby.env",
            "Airflow's own",
        ),
        (
            'checkpoint = "west/ck"\nrepository = "west/savepoints"\ncontroll = "x"',
            "controll",
            "no such field",
        ),
    ],
)
def test_a_mistake_names_its_field(tmp_path: Path, standby: str, field: str, what: str) -> None:
    said = mistake(load, tmp_path, f"{HEAD}[jobs.orders.standby]\n{standby}\n")
    assert f"{field}:" in said and what in said


def test_a_checkpoint_of_a_standby_is_no_other_jobs(tmp_path: Path) -> None:
    other = '[jobs.other]\napplication = "app.py"\ncheckpoint = "west/checkpoint/a"\n'
    with pytest.raises(InputError, match=r"west/checkpoint"):
        load(tmp_path, HEAD + STANDBY + other)
    with pytest.raises(InputError, match=r"belongs to a job"):
        load(tmp_path, HEAD + '[defaults.standby]\ncheckpoint = "x"\n')
