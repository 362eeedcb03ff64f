from __future__ import annotations

from pathlib import Path

import pytest

from streambank_airflow.dag_names import VERBS
from streambank_airflow.page import rights
from streambank_airflow.page.rights import dags_of, first_dags
from tests.support.airflow_face.metadata_db import BUNDLE, delete_import_errors, pause, write_import_error
from tests.support.airflow_face.page_api import page_on, write_job

__all__ = ["page_on"]


def test_the_first_dag_decides(airflow_database: None, tmp_path: Path) -> None:
    from airflow.utils.session import create_session

    write_job(tmp_path / "whole", "whole")
    write_job(tmp_path / "part", "part", only=("sla", "stop"))
    pause("part.stop")
    with create_session() as session:
        found = first_dags(session, ["whole", "part", "none"])

        assert {job: dag.dag_id for job, dag in found.items()} == {"whole": "whole.run", "part": "part.stop"}
        assert found["part"].paused
        assert [dag.verb for dag in dags_of(session, "part")] == ["stop", "sla"]
        assert [dag.verb for dag in dags_of(session, "whole")] == [
            verb for verb in VERBS if verb not in ("transform", "bootstrap", "failover")
        ]


def test_a_broken_file_that_is_deleted_has_no_dag_any_more(airflow_database: None, tmp_path: Path) -> None:
    """Airflow deletes the import error of a file that is gone, and leaves what its DAGs say of it."""
    from airflow.dag_processing.manager import DagFileProcessorManager
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    def broken() -> list[bool]:
        with create_session() as session:
            return [dag.broken for dag in dags_of(session, "gone")]

    write_job(tmp_path, "gone", only=("run", "stop"))
    assert broken() == [False, False]
    write_import_error("gone.py", "NameError: job", "gone.run", "gone.stop")
    write_import_error("other.py", "NameError: job")
    try:
        with create_session() as session:
            for dag_id in ("gone.run", "gone.stop"):
                session.get_one(DagModel, dag_id).is_stale = True
        assert broken() == [True, True]
        processor = DagFileProcessorManager(max_runs=1)
        processor.clear_orphaned_import_errors(BUNDLE, {"other.py"})
        with create_session() as session:
            assert session.get_one(DagModel, "gone.run").has_import_errors, "Airflow leaves it"
        assert broken() == []
    finally:
        delete_import_errors()


def test_many_names_are_asked_in_parts(
    airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.utils.session import create_session

    monkeypatch.setattr(rights, "_AT_ONCE", 2)
    for name in ("one", "two", "three"):
        write_job(tmp_path / name, name, only=("stop",))
    with create_session() as session:
        assert set(first_dags(session, ["one", "two", "three"])) == {"one", "two", "three"}
