from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import command_line
from streambank.control.records import encode_json
from streambank.core.errors import FormatError, InputError, NotFoundError, StorageError
from streambank.declaration.state import StatePolicy
from streambank.driver import installed
from streambank.driver.bundle import lay_beside
from streambank.driver.installed import (
    Installation,
    entry_path,
    find_installation,
    installation_for_state,
    require_known_spark,
)
from streambank.driver.launchers.local import KEPT_LOGS, LocalLauncher, launch_prefix
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, decode_launch, read_launch, write_launch
from tests.support.jobs.declared import BY, declare, fake_launcher, launched
from tests.support.paths import ROOT
from tests.support.refuses import refuses
from tests.support.waiting import poll


def test_a_launch_spec_is_read_as_it_was_written(folder: Path) -> None:
    job = declare(folder, "--deaf", more='[jobs.flights.spark]\nspark.x.y = "secret"')
    control = job.records()
    spec = prepare_launch(job, control, by=BY, log="/var/log/x")
    write_launch(control, spec)
    assert read_launch(control, spec.launch_id) == spec
    assert (spec.args, spec.beat_s, spec.ttl_s) == (("--deaf",), 0.1, 2.0)
    assert b"secret" not in control.store.read(spec.key), "values of settings are not kept"
    assert spec.queries["main"].checkpoint == job.checkpoint
    assert spec.control_of_job().store.uri == control.store.uri
    with pytest.raises(NotFoundError):
        read_launch(control, "launch-none")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": 2}, "unknown-format"),
        ({"format": None}, "unknown-format"),
        ({"queries": None}, "damaged-record"),
        ({"queries": {"main": {}}}, "damaged-record"),
    ],
)
def test_a_launch_spec_that_is_not_understood_is_refused(
    folder: Path, change: dict[str, object], code: str
) -> None:
    job = declare(folder)
    data = prepare_launch(job, job.records(), by=BY).to_dict()
    assert decode_launch(encode_json(data | {"from_a_later_version": 1})).job == "flights"
    with refuses(FormatError, code):
        decode_launch(encode_json(data | change))


def test_several_queries_have_a_checkpoint_each(folder: Path) -> None:
    job = declare(folder, more='queries = ["left", "right"]')
    spec = prepare_launch(job, job.records(), by=BY)
    assert {name: query.checkpoint for name, query in spec.queries.items()} == job.queries


def test_what_is_submitted_is_found_watched_and_killed(folder: Path) -> None:
    job = declare(folder)
    control, launcher = job.records(), fake_launcher(folder)
    assert launcher.find(control) == []
    spec = replace(prepare_launch(job, control, by=BY), args=("--boot-s", "60"))
    write_launch(control, spec)
    handle = launcher.submit(job, control, spec)
    assert launcher.status(handle).state == "running"
    found = poll(lambda: fake_launcher(folder).find(control))
    assert [one.launch_id for one in found] == [spec.launch_id]
    poll(lambda: launcher.log_lines(handle, 5))
    assert launcher.find(declare_other(folder)) == []
    launcher.kill(handle)
    poll(lambda: launcher.status(handle).state == "ended")
    assert launcher.status(handle).exit_code == -9
    assert fake_launcher(folder).status(found[0]).state == "ended"
    launcher.kill(handle)


def declare_other(folder: Path) -> JobControl:
    other = folder / "other"
    other.mkdir()
    return declare(other).records()


def test_a_driver_is_found_at_every_moment_of_its_coming_up(folder: Path) -> None:
    """While a process becomes another program it has no arguments; this one does so all the time."""
    job = declare(folder)
    control = job.records()
    script = folder / "again"
    script.write_text('#!/bin/sh\nexec "$0" "$@"\n')
    script.chmod(0o755)
    launch = f"{launch_prefix(control)}launch-1.json"
    control.store.write("launches/launch-1.json", b"{}")
    driver = subprocess.Popen([script, "--launch", launch])
    try:
        seen = Path(f"/proc/{driver.pid}/cmdline")
        poll(lambda: not seen.read_bytes())  # the fault: it is there, and says nothing
        for _ in range(200):
            assert launch in command_line(driver.pid)
        for _ in range(20):
            (found,) = LocalLauncher().find(control)
            assert found.launch_id == "launch-1"
    finally:
        driver.kill()
        driver.wait()
    assert command_line(driver.pid) == []


def test_a_missing_folder_or_spark_submit_is_told_by_the_driver_or_the_error(folder: Path) -> None:
    job = declare(folder)
    control, spec = launched(job)
    launcher = fake_launcher(folder)
    nowhere = replace(job, working_dir=str(folder / "nowhere"))
    handle = launcher.submit(nowhere, control, spec)
    poll(lambda: launcher.status(handle).state == "ended")
    assert launcher.status(handle).exit_code not in (0, None)
    assert f"{folder}/nowhere" in "\n".join(launcher.log_lines(handle, 5))
    (folder / "blocked").write_text("")
    with refuses(StorageError, "not-started"):
        launcher.submit(job, control, replace(spec, log=str(folder / "blocked" / "x.log")))


def test_a_job_keeps_the_newest_logs_only(folder: Path) -> None:
    job = declare(folder, "--run-to-end")
    control, launcher = job.records(), fake_launcher(folder)
    logs = folder / "repository.control" / "flights" / "logs"
    logs.mkdir(parents=True)
    for number in range(KEPT_LOGS + 5):
        for suffix in ("", ".1"):
            path = logs / f"launch-{number:032x}.log{suffix}"
            path.write_text("x")
            os.utime(path, (number, number))
    (logs / "notes.txt").write_text("mine")
    spec = prepare_launch(job, control, by=BY)
    write_launch(control, spec)
    handle = launcher.submit(job, control, spec)
    poll(lambda: launcher.status(handle).state == "ended")
    assert len(list(logs.glob("launch-*.log"))) == KEPT_LOGS
    assert len(list(logs.glob("launch-*.log.1"))) == KEPT_LOGS - 1
    assert (logs / "notes.txt").exists()


def test_spark_submit_is_found_without_importing_pyspark() -> None:
    found = find_installation()
    assert found.spark_submit.is_file() and os.access(found.spark_submit, os.X_OK)
    assert found.python == sys.executable
    assert (found.entry, found.python_path) == (
        ROOT / "spark_jobs" / "run_query.py",
        (str(ROOT / "provider"),),
    )
    assert entry_path().is_file()


def test_another_interpreter_is_asked_what_it_has(tmp_path: Path) -> None:
    with refuses(InputError, "no-python"):
        find_installation("/no/such/python")
    bare = tmp_path / "bin" / "python"
    bare.parent.mkdir()
    bare.write_text("#!/bin/sh\necho '{}'\n")
    bare.chmod(0o755)
    with refuses(InputError, "no-pyspark"):
        find_installation(str(bare))
    bare.write_text(f"""#!/bin/sh\necho '{{"pyspark": "{tmp_path}/pyspark/__init__.py"}}'\n""")
    with refuses(InputError, "no-pyspark", match="bin/spark-submit"):
        find_installation(str(bare))  # as pyspark-client is, which has no Spark
    distribution(tmp_path / "pyspark")
    found = find_installation(str(bare))
    assert (found.spark_home, found.python) == (tmp_path / "pyspark", str(bare))
    bare.write_text("#!/bin/sh\nexit 3\n")
    with refuses(StorageError, "python-does-not-run"):
        find_installation(str(bare))


def test_an_installation_in_site_packages_is_not_put_on_the_path_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streambank.__file__", "/env/lib/site-packages/streambank/__init__.py")
    origin = "/env/lib/site-packages/streambank_spark/__init__.py"
    assert installed._python_path({"streambank_spark": origin}, here=True) == ((), False)
    assert installed._python_path({}, here=False) == ((), True), "it is shipped"


def distribution(home: Path, *, release: str | None = None, jar: str | None = None) -> Path:
    """What of a distribution of Spark is looked at."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "spark-submit").touch()
    if release is not None:
        (home / "RELEASE").write_text(f"Spark {release} (git revision 1) built for Hadoop 3.4.1\n")
    if jar is not None:
        (home / "jars").mkdir()
        (home / "jars" / f"spark-core_2.12-{jar}.jar").touch()
    return home


def test_a_distribution_of_its_own_says_which_spark_it_is(tmp_path: Path) -> None:
    home = distribution(tmp_path / "spark", release="3.5.9")
    found = find_installation(sys.executable, str(home))
    assert (found.spark_home, found.spark_version) == (home, "3.5.9")
    assert require_known_spark(found) == "3.5.9"
    mixed = distribution(tmp_path / "mixed", release="4.2.0", jar="3.4.4")
    with refuses(FormatError, "spark-not-supported") as refused:
        require_known_spark(find_installation(sys.executable, str(mixed)))
    assert "3.4.4" in refused.value.message
    with refuses(InputError, "no-pyspark", hint="spark_home"):
        find_installation(sys.executable, str(tmp_path))


def test_without_a_pyspark_the_environment_names_the_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Airflow without PySpark: whatever needs Spark finds the same one."""
    home = distribution(tmp_path / "spark", jar="4.3.0")
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert find_installation().spark_home != home, "the installed one counts first"
    monkeypatch.setattr(installed, "_origins_here", dict)
    assert find_installation().spark_home == home
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PATH", str(home / "bin"))
    (home / "bin" / "spark-submit").chmod(0o755)
    assert find_installation().spark_home == home
    # What pip puts into an environment's own `bin` is no distribution.
    script = distribution(tmp_path / "venv")
    (script / "bin" / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", str(script / "bin"))
    with refuses(InputError, "no-pyspark"):
        find_installation()


def test_state_is_worked_on_by_a_spark_that_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = distribution(tmp_path / "old", jar="3.5.9")
    new = distribution(tmp_path / "new", jar="4.3.0")
    job = replace(declare(tmp_path), spark_home=str(old))
    assert installation_for_state(job) == installation_for_state(None) == find_installation()
    named = replace(job, state=StatePolicy(spark_home=str(new)))
    assert installation_for_state(named).spark_home == new
    monkeypatch.setattr(installed, "_origins_here", dict)
    monkeypatch.setenv("PATH", "/nowhere")
    own = replace(job, spark_home=str(new))
    assert installation_for_state(own).spark_home == new, "the job's own, where it can"
    for wrong in (job, replace(own, state=StatePolicy(spark_home=str(old)))):
        with refuses(FormatError, "spark-not-supported") as refused:
            installation_for_state(wrong)
        assert "3.5.9" in refused.value.message and "state.spark_home" in refused.value.hint
    with refuses(InputError, "no-pyspark"):
        installation_for_state(None)


def test_defaults_of_a_spark_that_cannot_be_told_to_read_them_come_first(tmp_path: Path) -> None:
    home = distribution(tmp_path / "spark", release="3.5.9")
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("spark.a theirs\n")
    found = find_installation(sys.executable, str(home))
    assert found.with_defaults("spark.a ours\n", {}) == ([], "spark.a theirs\n\nspark.a ours\n")
    elsewhere = {"SPARK_CONF_DIR": str(tmp_path)}
    assert found.with_defaults("spark.a ours\n", elsewhere) == ([], "spark.a ours\n")
    (home / "conf" / "spark-defaults.conf").write_bytes(b"spark.a \xff\n")
    with pytest.raises(InputError) as caught:
        found.with_defaults("spark.a ours\n", {})
    assert caught.value.code == "bad-spark-conf", "a job does not run without its defaults in silence"
    newer = find_installation(sys.executable, str(distribution(tmp_path / "newer", release="4.0.0")))
    assert newer.with_defaults("x", {}) == (["--load-spark-defaults"], "x")


def test_an_interpreter_without_streambank_gets_it_as_a_zip(tmp_path: Path) -> None:
    bundle = lay_beside(tmp_path)
    assert lay_beside(tmp_path) == bundle and [*tmp_path.iterdir()] == [bundle]
    bundle.write_bytes(b"something else")
    assert lay_beside(tmp_path).read_bytes() != b"something else"
    probe = "import streambank_spark.runner.entry as one; print(one.__file__)"
    environment = {"PYTHONPATH": str(bundle), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-S", "-c", probe],
        env=environment,
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.stdout.startswith(str(bundle)), done.stderr


def test_settings_reach_spark_submit(folder: Path) -> None:
    submit = folder / "echo" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$@"; cat /dev/fd/9\n')
    submit.chmod(0o755)
    job = declare(folder, more='master = "local[3]"\n[jobs.flights.spark]\n"spark.a" = "b c"')
    control = job.records()
    spec: LaunchSpec = prepare_launch(job, control, by=BY)
    launcher = LocalLauncher(Installation(sys.executable, folder / "echo", Path("/entry.py"), ()))
    handle = launcher.submit(job, control, spec)
    poll(lambda: launcher.status(handle).state == "ended")
    assert launcher.log_lines(handle, 20) == [
        str(folder),
        "--master",
        "local[3]",
        "--name",
        "flights",
        "--properties-file",
        "/dev/fd/9",
        "--load-spark-defaults",
        "/entry.py",
        "--digest",
        spec.digest,
        "--launch",
        f"{folder}/repository.control/flights/launches/{spec.launch_id}.json",
        "spark.authenticate=true",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.driver.host=127.0.0.1",
        "spark.a=b c",
    ]
