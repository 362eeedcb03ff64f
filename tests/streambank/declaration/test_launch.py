"""`[jobs.NAME.launch]`: where a job runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LaunchPolicy, is_local
from streambank.declaration.load import load_jobs
from streambank.driver.launchers.choose import launcher_for, placed, using_connections
from streambank.driver.launchers.kubernetes import KubernetesLauncher
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.launchers.standalone import StandaloneLauncher
from streambank.driver.launchers.yarn import YarnLauncher
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, write_jobs
from tests.support.jobs.jobs_file import mistake
from tests.support.refuses import refuses

K8S = '"k8s://https://api:6443"'
IN_IMAGE = 'image = "i", entry = "local:///run_query.py"'


def load(folder: Path, *lines: str, defaults: str = "") -> Job:
    file = write_jobs(folder, more="\n".join(lines))
    file.write_text(file.read_text().replace("\n[jobs", f"\n{defaults}\n[jobs", 1))
    return load_jobs(file).job("flights")


@pytest.mark.parametrize(
    ("lines", "on", "mode", "master"),
    [
        ((), "local", "client", "local[*]"),
        (('master = "local[2]"',), "local", "client", "local[2]"),
        (('master = "spark://h:7077"',), "standalone", "client", "spark://h:7077"),
        (('master = "yarn"',), "yarn", "client", "yarn"),
        (('launch.on = "yarn"', 'launch.deploy_mode = "cluster"'), "yarn", "cluster", "yarn"),
        ((f"master = {K8S}",), "kubernetes", "client", K8S.strip('"')),
    ],
)
def test_the_master_says_where_a_job_runs(
    folder: Path, lines: tuple[str, ...], on: str, mode: str, master: str
) -> None:
    job = load(folder, *lines)
    assert (job.launch.on, job.launch.deploy_mode, job.launch.master) == (on, mode, master)
    assert job.master == master
    assert not job.launch.comes_back(job.spark)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (('launch.on = "Mesos"',), "'Mesos' is not one of its values"),
        (('launch.on = "standalone"',), "needs the job's master"),
        (('master = "yarn"', 'launch.on = "local"'), "does not fit the master 'yarn'"),
        (('master = "yarn"', 'launch = {on = "local"}'), "does not fit the master 'yarn'"),
        (('launch.deploy_mode = "cluster"',), "does not use a cluster"),
        (('master = "yarn"', 'launch.rest = "http://h"'), "it is for standalone, and this job runs on yarn"),
        (('master = "spark://h:7"', "launch.supervise = true"), "only a driver in the cluster"),
        (('master = "spark://h:7"', 'launch.rest = "h:6066"'), "it is not a web address"),
        (('master = "spark://h:7"', 'launch.web = "http://u:p@h:1"'), "it contains a login"),
        (('master = "yarn"', 'launch.keytab = "k"'), "principal and keytab go together"),
        ((f"master = {K8S}", 'launch.deploy_mode = "cluster"'), "launch.image: it is missing"),
        (
            (f'master = {K8S}\nlaunch = {{deploy_mode = "cluster", image = "i"}}',),
            "how Streambank's code gets to",
        ),
        (('spark."spark.submit.deployMode" = "cluster"',), "a separate field"),
        (('spark."spark.kubernetes.authenticate.submission.oauthToken" = "x"',), "it is a credential"),
        (('launch.quue = "x"',), "Did you mean queue?"),
    ],
)
def test_what_cannot_be_is_said(folder: Path, lines: tuple[str, ...], said: str) -> None:
    assert said in mistake(load, folder, *lines)


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("n" * 89, 'master = "yarn"', None),
        ("n" * 90, 'master = "yarn"', "YARN's tags leave 89 characters"),
        ("n" * 52, f'master = {K8S}\nlaunch = {{deploy_mode = "cluster", {IN_IMAGE}}}', None),
        (
            "n" * 53,
            f'master = {K8S}\nlaunch = {{deploy_mode = "cluster", {IN_IMAGE}}}',
            "leave 52 characters",
        ),
        ("a_", f'master = {K8S}\nlaunch = {{deploy_mode = "cluster", {IN_IMAGE}}}', "ends with a letter"),
        ("n" * 99 + "_", f"master = {K8S}", None),
        ("n" * 99 + "_", 'master = "spark://h:7"\nlaunch.deploy_mode = "cluster"', None),
        ("n" * 99 + "_", "", None),
    ],
)
def test_a_name_must_be_one_that_the_cluster_can_find_a_driver_by(
    folder: Path, name: str, lines: str, said: str | None
) -> None:
    file = write_jobs(folder, name=name, more=lines)
    if said is None:
        assert load_jobs(file).job(name).name == name
        return
    assert said in mistake(load_jobs, file)


def test_defaults_of_another_place_do_not_count(folder: Path) -> None:
    defaults = '[defaults.launch]\non = "yarn"\ndeploy_mode = "cluster"\nqueue = "q"\nsupervise = true'
    job = load(folder, 'master = "local[1]"', defaults=defaults)
    assert job.launch == LaunchPolicy(master="local[1]")
    job = load(folder, defaults=defaults)
    assert (job.launch.on, job.launch.queue, job.launch.supervise) == ("yarn", "q", False)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((), LocalLauncher),
        (('master = "yarn"',), LocalLauncher),
        (('master = "spark://h:7"', 'launch.deploy_mode = "cluster"'), StandaloneLauncher),
        (
            ('master = "yarn"', 'launch = {deploy_mode = "cluster", resource_manager = "http://h:8088"}'),
            YarnLauncher,
        ),
        ((f'master = {K8S}\nlaunch = {{deploy_mode = "cluster", {IN_IMAGE}}}',), KubernetesLauncher),
    ],
)
def test_each_place_has_its_launcher(folder: Path, lines: tuple[str, ...], kind: type) -> None:
    assert isinstance(launcher_for(load(folder, *lines)), kind)


def test_what_comes_back_by_itself(folder: Path) -> None:
    job = load(folder, 'master = "spark://h:7"', 'launch = {deploy_mode = "cluster", supervise = true}')
    assert job.launch.comes_back(job.spark)
    more = 'master = "yarn"\nlaunch.deploy_mode = "cluster"\nspark."spark.yarn.maxAppAttempts" = 2'
    job = load(folder, more)
    assert job.launch.comes_back(job.spark)


def test_a_connection_is_asked_only_where_somebody_can(folder: Path) -> None:
    job = load(folder, 'launch.connection = "spark_default"')
    assert (job.launch.master, job.master) == (None, "local[*]")
    with refuses(InputError, "connection-not-known"):
        start_job(job, by=BY)
    assert job.records().desired() is None
    with using_connections(lambda job: LaunchPolicy("standalone", master="spark://h:7077")):
        assert placed(job).master == "spark://h:7077"
        assert isinstance(launcher_for(job), LocalLauncher)


def test_what_is_declared_beside_a_connection_is_enough(folder: Path) -> None:
    job = load(folder, 'master = "spark://h:7077"', 'launch.connection = "spark_default"')
    assert placed(job) is job
    assert job.launch.declared == {"master": "spark://h:7077"}


def test_spark_is_on_this_machine_unless_a_master_says_otherwise() -> None:
    assert is_local(None) and is_local("local[2]")
    assert not is_local("yarn") and not is_local("spark://h:7077")
