"""Another user of the machine has made the folder into which the ssh launcher lays code and settings."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.launch import LaunchPolicy
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import write_launch
from tests.support.drivers.installed_launcher import EXAMPLE, fake_ssh
from tests.support.jobs.declared import BY, declare
from tests.support.waiting import poll


def launcher(tmp_path: Path, **settings: str) -> Any:
    spec = importlib.util.spec_from_file_location("ssh_launcher", EXAMPLE / "ssh_launcher.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    submit = tmp_path / "spark-submit"
    submit.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    submit.chmod(0o755)
    told = {"host": "edge", "ssh": str(fake_ssh(tmp_path)), "spark_submit": str(submit), **settings}
    return module.SshLauncher(LaunchPolicy(on="ssh", settings=told))


@pytest.mark.parametrize("whose", ["another-user's", "a-link", "ours", "the-default"])
def test_a_driver_runs_only_in_a_folder_of_its_own_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)  # where ssh begins
    job = declare(tmp_path)
    spec = prepare_launch(job, job.records(), by=BY)
    write_launch(job.records(), spec)
    folder = tmp_path / "folder"
    if whose == "another-user's":
        if os.geteuid() == 0:
            folder.mkdir()
            os.chown(folder, 65534, 65534)
        else:
            folder = Path("/var")
    elif whose == "a-link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir(mode=0o755)
    settings = {} if whose == "the-default" else {"folder": str(folder)}
    submit = launcher(tmp_path, **settings).submit
    if whose in ("ours", "the-default"):
        submit(job, job.records(), spec)
        poll(lambda: (tmp_path / "ran").exists())
        place = home / ".streambank" if whose == "the-default" else folder
        assert place.stat().st_mode & 0o777 == 0o700 and (place / spec.launch_id / "run_query.py").exists()
        return
    with pytest.raises(StorageError) as caught:
        submit(job, job.records(), spec)
    assert caught.value.code == "not-started" and str(folder) in caught.value.message
    assert not (tmp_path / "ran").exists() and not [*folder.glob("launch-*")]
