"""The docs say what is so: commands run, declarations load, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import parquet

from streambank.declaration.load import load_jobs
from streambank.storage import open_store
from tests.support.archives import unpack_tar
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.spark.jvm import spark_options
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [page for place in ("*.md", "docs/**/*.md", "bench/*.md") for page in sorted(ROOT.glob(place))]
FIXTURE = ROOT / "tests" / "data" / "checkpoints" / "4.3.0" / "rocksdb-changelog-window.tar.xz"
STREAMBANK = [sys.executable, "-m", "streambank"]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Every `$` line of the page's console blocks, by block order."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


def wait_for_rows(output: Path) -> None:
    """Wait until a file sink has committed more rows."""

    def rows() -> int:
        logged = "".join(log.read_text(encoding="utf-8") for log in output.glob("_spark_metadata/[0-9]*"))
        names = set(re.findall(r'"path":"[^"]*/([^"/]+)"', logged))
        return sum(parquet.read_metadata(output / name).num_rows for name in names)

    before = rows()
    wait_for("rows in the output", lambda: rows() > before)


def outputs(page: Path) -> dict[str, list[str]]:
    """What the page shows below a command, by the command."""
    found: dict[str, list[str]] = {}
    for block in blocks(page, "console"):
        command = ""
        for line in block.splitlines():
            if line.startswith("$ "):
                command = shlex.join(shlex.split(line[2:]))
            else:
                found.setdefault(command, []).append(line)
    return found


def without_figures(line: str) -> str:
    """A line of output without what differs from run to run: ids, sizes, times and the folder."""
    line = re.sub(r"file:///\S*?/(?=(?:checkpoints?|out)\b)", "file:///", line)
    return re.sub(
        r"b\d{6}-[0-9a-f]{12}|(?<=batch )\d+|\d+(?= files?\b)|\d+(?:\.\d+)?(?= (?:k?B|s)\b)", "#", line
    )


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """A folder in which the README's checkpoint lies, and an output that is two batches ahead of it."""
    target = tmp_path / "checkpoints" / "orders"
    unpack_tar(FIXTURE, tmp_path / "unpacked")
    target.parent.mkdir(parents=True)
    (tmp_path / "unpacked" / "checkpoint").rename(target)
    output = FileSinkWriter(open_store(tmp_path / "out" / "orders"))
    newest = max(int(name.name) for name in (target / "commits").iterdir() if name.name.isdecimal())
    for batch in range(newest + 3):
        output.write(batch, [{"batch": batch}])
    return tmp_path


def in_sandbox(words: list[str], sandbox: Path) -> list[str]:
    return [word.replace("file:///", f"file://{sandbox}/") for word in words]


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_command_runs(page: Path, sandbox: Path) -> None:
    """What builds or downloads is checked by name; all else runs, one after the other, as a reader would."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    found, shown = commands(page), outputs(page)
    assert found
    for words in found:
        match words:
            case ["make", target]:
                assert target in make_targets()
            case ["docker", "compose", "up", *_]:
                assert (ROOT / "docker-compose.yml").is_file()  # what is in it: tests/stack/test_compose.py
            case ["pip", "install", package]:
                assert package == name
            case ["python3", "-m", "venv", ".venv"] | [".", ".venv/bin/activate"]:
                pass  # what Python itself does
            case ["rm", "-rf", folder]:
                subprocess.run(["rm", "-rf", folder], cwd=sandbox, check=True)
            case ["streambank", *rest] | ["python", "-m", "streambank", *rest]:
                answer = subprocess.run(
                    [*STREAMBANK, *in_sandbox(rest, sandbox)],
                    cwd=sandbox,
                    env=os.environ | {"PYTHONPATH": str(ROOT / "provider")},
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert answer.returncode == 0, f"{shlex.join(words)}\n{answer.stdout}{answer.stderr}"
                assert answer.stdout.strip()
                said = list(map(without_figures, answer.stdout.splitlines()))
                for line in shown.get(shlex.join(words), ()):
                    assert without_figures(line) in said, f"{line}\nis not in\n{answer.stdout}"
            case _:
                pytest.fail(f"nobody knows how to check {shlex.join(words)!r}")


def test_the_declaration_of_the_readme_loads(tmp_path: Path) -> None:
    (block,) = blocks(README, "toml")
    file = tmp_path / "streaming_jobs.toml"
    file.write_text(block)
    declared = load_jobs(file)
    assert list(declared.jobs) == ["orders"]
    assert declared.jobs["orders"].savepoint.schedule == "*/15 * * * *"


@pytest.mark.airflow
def test_the_dag_file_of_the_readme_builds_the_dags_that_it_names(tmp_path: Path) -> None:
    (declaration,) = blocks(README, "toml")
    _, dag_file = blocks(README, "python")
    (tmp_path / "streaming_jobs.toml").write_text(declaration)
    names: dict[str, object] = {}
    exec(dag_file.replace("/opt/airflow/dags", str(tmp_path)), names)
    promised = set(re.findall(r"`(orders\.\w+)`", README.read_text(encoding="utf-8")))
    assert promised == {name for name in names if name.startswith("orders.")}


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings as GitHub spells them, and anchors of its own."""
    text = page.read_text(encoding="utf-8")
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.relative_to(ROOT)} links to {link}"


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)", index)}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page.name != "index.md"}
    assert pages <= linked, sorted(str(page.relative_to(ROOT)) for page in pages - linked)


def test_the_glossary_is_in_order_and_gives_each_word_one_meaning() -> None:
    rows = re.findall(r'^\| <a id="([^"]+)"></a>([^|]+) \|', _glossary(), re.MULTILINE)
    words = [word.strip().lower() for _, word in rows]
    assert words == sorted(words)
    every = [one.strip() for word in words for one in word.split(",")]
    assert len(every) == len(set(every))
    assert len(rows) == _glossary().count("\n| ") - 1


def _glossary() -> str:
    return (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.storm
@pytest.mark.spark
@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial.md"
    (program,), (declaration,) = blocks(page, "python"), blocks(page, "toml")
    (tmp_path / "orders.py").write_text(program, encoding="utf-8")
    # Beside what the page says: a Java that starts quickly, for drivers that run for seconds.
    quick = declaration.replace("\n[jobs.orders.spark]", 'env = ["JDK_JAVA_OPTIONS"]\n\n[jobs.orders.spark]')
    (tmp_path / "streaming_jobs.toml").write_text(quick, encoding="utf-8")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STREAMBANK_")
    } | {"PYTHONPATH": str(ROOT / "provider"), "JDK_JAVA_OPTIONS": spark_options()}
    refused = []
    try:
        for block in blocks(page, "console"):
            for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, *shown = step.splitlines()
                match shlex.split(line):
                    case ["export", assignment]:
                        environment |= dict([assignment.split("=")])
                    case ["sleep", _]:
                        wait_for_rows(tmp_path / "output")
                    case ["rm", "-rf", "checkpoint"]:
                        shutil.rmtree(tmp_path / "checkpoint")
                    case ["streambank", *words]:
                        answer = subprocess.run(
                            [*STREAMBANK, *words],
                            cwd=tmp_path,
                            env=environment,
                            capture_output=True,
                            text=True,
                            timeout=180,
                            check=False,
                        )
                        if answer.returncode != 0:
                            refused.append((answer.returncode, line))
                        said = [
                            without_figures(each) for each in (answer.stdout + answer.stderr).splitlines()
                        ]
                        for each in shown:
                            assert without_figures(each) in said, f"{line}: {said}"
                    case _:
                        pytest.fail(f"nobody knows how to check {line!r}")
    finally:
        stop = [*STREAMBANK, "job", "stop", "orders", "--jobs", "streaming_jobs.toml"]
        subprocess.run(stop, cwd=tmp_path, env=environment, capture_output=True, timeout=180, check=False)
    assert refused == [
        (8, "streambank job start orders"),  # it would have begun from nothing
        (8, "streambank restore latest-good --job orders --generation --dry-run"),
    ]
    assert (tmp_path / "checkpoint.g0002" / "commits").is_dir()


ORDINARY = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import window

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 1).getOrCreate()
orders = (
    spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    .selectExpr("timestamp", "value % 3 AS customer").withWatermark("timestamp", "1 second")
)
counts = orders.groupBy(window("timestamp", "1 second"), "customer").count()
(
    counts.selectExpr("cast(window.start AS double) AS start", "customer", "count")
    .writeStream.format("parquet").option("path", "out/orders")
    .option("checkpointLocation", "checkpoints/orders").trigger(processingTime="1 second").start()
).awaitTermination()
"""
"""A query as README means it: windows over made up orders, ten a second, into files."""


class Ordinary:
    """That program in a folder, run by `python`, as a user does it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "orders.py").write_text(ORDINARY, encoding="utf-8")
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT / "provider"),
            "JDK_JAVA_OPTIONS": spark_options(),
        }

    @contextmanager
    def running(self, log: str) -> Iterator[subprocess.Popen[bytes]]:
        """The program, until it is killed at the end of the block."""
        with (self.folder / log).open("wb") as out:
            program = subprocess.Popen(
                [sys.executable, "orders.py"], cwd=self.folder, env=self.environment, stdout=out, stderr=out
            )
            try:
                yield program
            finally:
                program.kill()
                program.wait()

    def call(self, line: str) -> subprocess.CompletedProcess[str]:
        """One command of the page."""
        return subprocess.run(
            [*STREAMBANK, *shlex.split(line)[1:]],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def committed(self) -> int:
        names = (one.name for one in (self.folder / "checkpoints/orders/commits").glob("*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def wait_for(self, batch: int, program: subprocess.Popen[bytes]) -> None:
        wait_for(
            f"batch {batch}", lambda: self.committed() >= batch or program.poll() is not None, within_s=180
        )
        assert program.poll() is None, (self.folder / "first.log").read_text()[-3000:]

    def rows(self) -> dict[tuple[float, int], list[int]]:
        """The counts of each window and customer, as readers of the output see them: by its log."""
        found: dict[tuple[float, int], list[int]] = {}
        entries = sorted((self.folder / "out/orders/_spark_metadata").glob("[0-9]*"))
        newest = max((one for one in entries if one.suffix), default=None, key=lambda one: int(one.stem))
        kept = [one for one in entries if newest is None or int(one.stem) >= int(newest.stem)]
        for entry in kept:
            for name in re.findall(r'"path":"file://([^"]+)"', entry.read_text(encoding="utf-8")):
                for row in parquet.read_table(name).to_pylist():
                    found.setdefault((row["start"], row["customer"]), []).append(row["count"])
        return found


def counted(began_ms: int, windows: set[float]) -> dict[tuple[float, int], list[int]]:
    """What a batch computation gives for some windows: the order `n` comes `n` tenths of a second after."""
    found: dict[tuple[float, int], list[int]] = {}
    last = int((max(windows) + 1) * 1000)
    for order in range((last - began_ms) // 100 + 1):
        start = float((began_ms + 100 * order) // 1000)
        if start in windows:
            found.setdefault((start, order % 3), [0])[0] += 1
    return found


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_of_the_readme_bring_an_ordinary_query_back(tmp_path: Path) -> None:
    """README's three commands, played with a query as most are: no row is lost or there twice afterwards."""
    query = Ordinary(tmp_path)
    lines = [shlex.join(words) for words in commands(README) if words[0] in ("streambank", "rm")]
    take, verify, remove, restore = (one for one in lines if "doctor" not in one)
    assert take.startswith("streambank take") and restore.startswith("streambank restore")
    with query.running("first.log") as program:
        query.wait_for(6, program)
        unnamed = query.call("streambank take checkpoints/orders -r others --job orders")
        assert "out/orders was not named: it was found near the checkpoint" in unnamed.stdout, unnamed
        for line in (take, verify):
            answer = query.call(line)
            assert answer.returncode == 0, answer
        saved = query.committed()
        query.wait_for(saved + 4, program)
    began_ms = int(re.findall(rb"\d{13}", (tmp_path / "checkpoints/orders/sources/0/0").read_bytes())[0])
    newest = max(int(one.stem) for one in (tmp_path / "out/orders/_spark_metadata").glob("[0-9]*"))
    subprocess.run(shlex.split(remove), cwd=tmp_path, check=True)
    refused = query.call(restore.removesuffix(" --sink rollback"))
    assert refused.returncode == 8 and "--sink rollback" in refused.stderr, refused
    answer = query.call(restore)
    assert answer.returncode == 0 and "rolled back" in answer.stdout, answer
    with query.running("again.log") as program:
        query.wait_for(newest + 3, program)
    rows = query.rows()
    assert rows == counted(began_ms, {start for start, _ in rows})


def test_the_launcher_of_the_page_is_the_one_that_is_tested() -> None:
    page, example = ROOT / "docs/howto/launchers.md", ROOT / "examples/ssh_launcher"
    assert (example / "ssh_launcher.py").read_text(encoding="utf-8") in blocks(page, "python")
    assert (example / "pyproject.toml").read_text(encoding="utf-8") in blocks(page, "toml")
