"""A driver in a standalone cluster: started, found again, stopped at a batch boundary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.driver.launchers.choose import launcher_for
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.support.drivers.real_driver import APPLICATIONS
from tests.support.jobs.declared import BY
from tests.support.jobs.lines_job import lines_job
from tests.support.spark.standalone_cluster import running_cluster

pytestmark = pytest.mark.spark


def importing(folder: Path) -> str:
    """The application, behind one that imports a module of the job's own at its top."""
    (folder / "lib").mkdir()
    (folder / "lib" / "beside.py").write_text(f"APPLICATION = {str(APPLICATIONS / 'hanging.py')!r}\n")
    file = folder / "app.py"
    file.write_text(
        "import runpy\n\nimport beside\n\nrunpy.run_path(beside.APPLICATION, run_name='__main__')\n"
    )
    return str(file)


@pytest.mark.storm
def test_a_driver_runs_on_a_worker_and_stops_at_a_batch_boundary(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "job").mkdir()
    with running_cluster(tmp_path / "cluster", workers=1, cores=2, rest=True) as cluster:
        launch = f'launch = {{deploy_mode = "cluster", rest = "{cluster.rest}", web = "{cluster.web}"}}'
        conf = {**cluster.conf, "spark.submit.pyFiles": str(tmp_path / "lib" / "beside.py")}
        lines = lines_job(tmp_path / "job", f'master = "{cluster.master}"\n{launch}', conf)
        lines = replace(lines, job=replace(lines.job, application=importing(tmp_path)))
        lines.arrive("one")
        started = start_job(lines.job, by=BY)
        assert (started.state, started.epoch) == ("started", 1)
        assert started.submission is not None and started.submission.startswith("driver-")
        lines.wait_rows("one")

        status = job_status(lines.job)
        assert (status.state, status.submission) == ("running", started.submission)
        assert started.tracking is not None and started.submission in started.tracking
        assert status.log == status.tracking == started.tracking
        launcher = launcher_for(lines.job)
        (handle,) = launcher.find(lines.control)
        assert (handle.launch_id, handle.submission) == (started.launch_id, started.submission)
        assert any("Launch Command" in line or "INFO" in line for line in launcher.log_lines(handle, 400))

        stopped = stop_job(lines.job, by=BY)
        assert (stopped.how, stopped.batch) == ("boundary", 0)
        assert job_status(lines.job).state == "stopped"
        assert launcher.find(lines.control) == [] or launcher.status(handle).state == "ended"
