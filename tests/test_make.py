"""The Makefile and the CI entry, without the network: set-up runs with a stand-in for uv."""

from __future__ import annotations

import os
import re
import shutil
import socket
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
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "needs", tmp_path / ".ci")
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
    ("settings", "named"),
    [
        (("PYTHON=",), "Python 3.11.*apt-get install python3 python3-venv\\)"),
        (("PYTHON=/nonexistent/python",), "Python 3.11"),
        (("PYTHON=./old-python",), "Python 3.11"),
        (("PYTHON=./bare-python",), "Python's venv module.*apt-get install python3-venv\\)"),
        (("JAVA=/nonexistent/java",), "Java 17.*apt-get install openjdk-17-jre-headless\\)"),
        (
            ("PYTHON=./bare-python", "JAVA=/nonexistent/java"),
            "venv module.*Java 17.*apt-get install python3-venv openjdk-17-jre-headless\\)",
        ),
    ],
)
def test_all_that_is_missing_is_said_in_one_line(
    checkout: Path, settings: tuple[str, ...], named: str
) -> None:
    for name, answers in (("old", "exit 1"), ("bare", 'case "$2" in *ensurepip*) exit 1;; esac')):
        python = checkout / f"{name}-python"
        python.write_text(f"#!/bin/sh\n{answers}\n")
        python.chmod(0o755)
    target = "setup" if len(settings) == 1 else "up"
    answer = make(target, *settings, cwd=checkout)
    assert answer.returncode != 0
    said = [line for line in answer.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert re.search(named, said[0])
    assert not (checkout / "calls").exists(), "it is said before anything is fetched"


def needs(*what: str, path: str = "") -> tuple[int, str]:
    """The exit code of .ci/needs, and what it says."""
    environment = {"PATH": path or os.environ["PATH"], "PYTHON": sys.executable}
    command = ["/bin/sh", str(ROOT / ".ci" / "needs"), *what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_machine_that_has_all_hears_nothing() -> None:
    assert needs("java", "git", "make", "disk=1", "temporary=1", "args", "--home", "here") == (0, "")
    assert needs("--packages", "java", "git", "make") == (0, "\n")


def test_room_programs_and_packages_are_named_together(tmp_path: Path) -> None:
    for name in ("sed", "awk", "df"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    code, said = needs("java", "git", "pgrep", "browser", "disk=99999999", path=str(tmp_path))
    assert code == 1 and said.count("\n") == 1
    assert re.search("Java 17.*; git; pgrep; a Chromium; 99999999 MB of disk in .* MB are free", said)
    packages = "openjdk-17-jre-headless git procps chromium"
    assert f"apt-get install {packages})" in said
    assert needs("--packages", "java", "git", "pgrep", "browser", path=str(tmp_path)) == (0, f"{packages}\n")


@pytest.mark.parametrize("form", ["--port={}", "--port {}"])
def test_a_port_that_is_in_use_is_said_before_anything_is_fetched(checkout: Path, form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = make("up", f"ARGS={form.format(port)}", f"PYTHON={sys.executable}", cwd=checkout)
    assert answer.returncode != 0 and f"port {port} of 127.0.0.1" in answer.stderr
    assert not (checkout / "calls").exists()
    free = make("up", f"ARGS={form.format(port)}", f"PYTHON={sys.executable}", cwd=checkout)
    assert f"port {port} of" not in free.stderr and (checkout / "calls").exists()


def test_what_a_target_needs_is_asked_for_by_its_name() -> None:
    assert needs("a-moon")[0] == 2
    for target, asked in (
        ("lint", "node npm"),
        ("test", "git pgrep disk="),
        ("test-storm", "browser"),
        ("up", "args --port 8081"),
    ):
        dry = make("-n", target, "ARGS=--port 8081").stdout
        line = next(line for line in dry.splitlines() if line.startswith(".ci/needs java"))
        assert asked in line
    assert "browser" not in make("-n", "test").stdout, "the suite needs none"


@pytest.mark.parametrize(
    ("settings", "megabytes", "folders"),
    [
        ({}, "1", {"/dev/shm", "/tmp"}),  # whether there is such a memory, the machine decides
        ({}, "999999999", {"/tmp"}),
        ({"TMPDIR": "/var/tmp"}, "1", {"/var/tmp"}),
    ],
)
def test_temporary_files_are_in_memory_where_there_is_room_and_no_other_wish(
    settings: dict[str, str], megabytes: str, folders: set[str]
) -> None:
    command = [str(ROOT / ".ci" / "temporary"), megabytes]
    done = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **settings}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in folders
    assert done.stderr == ""


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
    for name, lines in (
        ("make", 'echo "$1 ${PYTHON-none}"'),
        ("java", "echo 'openjdk version \"17.0.1\"' >&2"),
        ("id", "echo 1000"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    for name in ("run", "needs"):
        shutil.copy(ROOT / ".ci" / name, tmp_path / ".ci")
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
