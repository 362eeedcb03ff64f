from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError, NotFoundError
from streambank.driver.application import check_application
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, fake_launcher


@pytest.mark.parametrize("application", ["app.jar", "notebook.ipynb", "app.zip", "app"])
def test_only_pyspark_programs(tmp_path: Path, application: str) -> None:
    (tmp_path / application).touch()
    with pytest.raises(InputError) as refused:
        check_application(str(tmp_path / application))
    assert refused.value.code == "not-pyspark"


def test_a_missing_application(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as refused:
        check_application(str(tmp_path / "app.py"))
    assert refused.value.code == "no-application"


def test_nothing_is_launched_for_an_application_that_is_not_there(folder: Path) -> None:
    job = declare(folder)
    (folder / "app.py").unlink()
    launcher = fake_launcher(folder)
    with pytest.raises(NotFoundError) as refused:
        start_job(job, by=BY, launcher=launcher)
    assert refused.value.code == "no-application"
    assert str(folder / "app.py") in refused.value.message
    assert launcher.find(job.records()) == []
    lock = job.records().operation_lock.view()
    assert lock is not None and lock.state == "ended"
    assert job.records().desired() is None, "what cannot be launched is not meant to run"
