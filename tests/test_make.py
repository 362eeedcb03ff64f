"""The Makefile and the CI entry, without the network: set-up runs with a stand-in for uv."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TARGETS = [
    "setup",
    "fmt",
    "lint",
    "check",
    "test",
    "test-quick",
    "test-storm",
    "test-fuzz",
    "storm-report",
    "demo",
    "up",
    "down",
    "stack",
    "stack-down",
    "test-stack",
    "check-compose",
    "bench",
    "s3a-jars",
    "lock",
    "sbom",
    "vulnerabilities",
    "image-digests",
    "wheel",
    "clean",
]
FROM_AN_OUTER_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "JAVA"}
# Writes down how it was called, and makes the one file that set-up looks for.
FAKE_UV = """#!/bin/sh
echo "$@" >> calls
touch "$(mktemp)"
[ "$1" = venv ] || exit 0
mkdir -p .venv/bin
echo '#!/bin/sh' > .venv/bin/python
chmod +x .venv/bin/python
"""


def make(*arguments: str, cwd: Path = ROOT, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in FROM_AN_OUTER_MAKE}
    environment["PATH"] = path or environment["PATH"]
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, whose uv is a stand-in."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    (tmp_path / "requirements-boot.lock").touch()
    (tmp_path / "pyproject.toml").touch()
    uv = tmp_path / ".boot" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(FAKE_UV)
    uv.chmod(0o755)
    return tmp_path


def test_help_lists_every_target_with_a_line_of_its_own() -> None:
    lines = make().stdout.splitlines()
    listed = {line.split()[1]: line.split(maxsplit=2)[2] for line in lines}
    assert set(TARGETS) <= set(listed)
    assert all(listed.values())


def test_setup_installs_from_the_lock_by_hash_and_the_project_without_dependencies(checkout: Path) -> None:
    assert make("setup", cwd=checkout).returncode == 0
    calls = (checkout / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["venv", "pip", "pip"]
    assert (
        "--require-hashes" in calls[1]
        and "--compile-bytecode" in calls[1]
        and "requirements.lock" in calls[1]
    )
    assert "--no-deps" in calls[2] and "--editable ." in calls[2]
    assert len(list((checkout / ".boot" / "tmp").iterdir())) == 3, "temporary files stay in the folder"


def test_uv_comes_by_hash_and_in_one_version() -> None:
    text = (ROOT / "requirements-boot.lock").read_text()
    pinned = r"(#.*\n)*uv==[0-9.]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+"
    assert re.fullmatch(pinned, text), text[:200]
    recipe = (ROOT / "Makefile").read_text()
    assert re.search(r"pip install .*\\\n.*--require-hashes --no-deps .*requirements-boot.lock", recipe)


def test_a_second_setup_does_nothing_until_the_lock_changes(checkout: Path) -> None:
    make("setup", cwd=checkout)
    calls = (checkout / "calls").read_text()
    assert make("setup", cwd=checkout).returncode == 0
    assert (checkout / "calls").read_text() == calls
    later = (checkout / ".venv" / ".ready").stat().st_mtime + 5
    os.utime(checkout / "requirements.lock", (later, later))
    make("setup", cwd=checkout)
    assert len((checkout / "calls").read_text().splitlines()) == len(calls.splitlines()) + 2


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("PYTHON=", "Python 3.11"),
        ("PYTHON=/nonexistent/python", "Python 3.11"),
        ("PYTHON=./old-python", "Python 3.11"),
        ("JAVA=/nonexistent/java", "Java 17"),
    ],
)
def test_what_is_missing_is_said_in_one_line(checkout: Path, setting: str, named: str) -> None:
    old = checkout / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")  # what 3.10 answers to the question whether it is new enough
    old.chmod(0o755)
    answer = make("setup", setting, cwd=checkout)
    assert answer.returncode != 0
    said = [line for line in answer.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert named in said[0] and "install it" in said[0]
    assert not (checkout / "calls").exists()


@pytest.mark.parametrize(("version", "accepted"), [("1.8.0_372", False), ("11.0.2", False), ("21.0.1", True)])
def test_an_old_java_is_refused(checkout: Path, version: str, accepted: bool) -> None:
    java = checkout / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2022-01-01' >&2\n")
    java.chmod(0o755)
    assert (make("setup", f"JAVA={java}", cwd=checkout).returncode == 0) is accepted


def test_a_python_that_does_not_run_is_passed_over(checkout: Path) -> None:
    """A version manager's shim is on the path even where its version is not installed."""
    shims = checkout / "shims"
    shims.mkdir()
    for name in ("python3.11", "python3.12", "python3.13"):
        (shims / name).write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
        (shims / name).chmod(0o755)
    (shims / "python3").symlink_to(sys.executable)
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    answer = make("setup", cwd=checkout, path=path)
    assert answer.returncode == 0, answer.stderr
    assert f"--python {shims / 'python3'}" in (checkout / "calls").read_text()


def test_ci_runs_what_a_developer_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make (\S+)$", script, re.MULTILINE) == ["setup", "check", "test", "demo"]
    assert "set -eu" in script and "export CI=true" in script
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert subprocess.run(["sh", "-n", str(ROOT / ".ci" / "run")], check=False).returncode == 0


def test_ci_prefers_debians_own_python(tmp_path: Path) -> None:
    for name, lines in (("make", 'echo "$1 ${PYTHON-none}"'), ("java", ""), ("id", "echo 1000")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(tmp_path / ".ci" / "run")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    debian = Path("/usr/bin/python3.11")
    runs = (
        debian.exists()
        and not subprocess.run([debian, "-c", "import ensurepip, venv"], check=False).returncode
    )
    assert done.stdout.splitlines()[0] == f"setup {debian if runs else 'none'}"
