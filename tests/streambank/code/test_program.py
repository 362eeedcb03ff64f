"""A program by what is in it: the application and what it imports from its own folder."""

from __future__ import annotations

from pathlib import Path

from streambank.code.program import PY_FILES, Program, read_program


def program(folder: Path, settings: dict[str, str] | None = None) -> Program:
    found = read_program(str(folder / "app.py"), settings or {})
    assert found is not None
    return found


def test_modules_of_its_own_folder_come_with_an_application(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import json, helper\ndef late():\n    from parts import one\n")
    (tmp_path / "helper.py").write_text("import other\n")
    (tmp_path / "other.py").write_text("raise SystemExit('nothing is run')\n")
    (tmp_path / "stranger.py").touch()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/__init__.py").touch()
    (tmp_path / "parts/one.py").touch()
    found = program(tmp_path)
    assert list(found.files) == ["app.py", "helper.py", "other.py", "parts/__init__.py", "parts/one.py"]


def test_a_change_of_any_of_its_files_is_another_program(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import helper\n")
    (tmp_path / "helper.py").touch()
    (tmp_path / "more.zip").touch()
    settings = {PY_FILES: f"file://{tmp_path}/more.zip"}
    before = program(tmp_path, settings)
    assert program(tmp_path, settings).digest == before.digest
    seen = {before.digest}
    for name in ("app.py", "helper.py", "more.zip"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
        seen.add(program(tmp_path, settings).digest)
    assert len(seen) == 4
    assert before.files[".py-files/0/more.zip"] == tmp_path / "more.zip"


def test_the_same_program_in_another_folder_is_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text("import helper\n")
        (tmp_path / name / "helper.py").write_text("x = 1\n")
    assert program(tmp_path / "one").digest == program(tmp_path / "two").digest


def test_what_cannot_be_read_here_has_no_program(tmp_path: Path) -> None:
    assert read_program(str(tmp_path / "gone.py"), {}) is None
    (tmp_path / "app.py").touch()
    assert read_program(str(tmp_path / "app.py"), {PY_FILES: "hdfs://nn/more.zip"}) is None


def test_a_module_that_this_python_does_not_understand_counts_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import newer, other\n")
    (tmp_path / "newer.py").write_text("def of_a_later(:\n")
    (tmp_path / "other.py").touch()
    before = program(tmp_path)
    assert list(before.files) == ["app.py", "newer.py", "other.py"]
    assert before.not_understood == ("newer.py",)
    (tmp_path / "newer.py").write_text("def of_a_later_one(:\n")
    assert program(tmp_path).digest != before.digest


def test_an_application_with_an_error_in_it_is_a_program_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def broken(:\n")
    assert list(program(tmp_path).files) == ["app.py"]
    (tmp_path / "app.py").write_bytes(b"x = '\0'\n")
    assert list(program(tmp_path).files) == ["app.py"]
