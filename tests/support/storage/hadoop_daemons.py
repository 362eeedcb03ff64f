"""Hadoop's own daemons on the loopback device, from demo/jars/yarn.py and PySpark's jars: YARN, HDFS."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from demo.jars.yarn import YARN
from streambank.driver.installed import find_installation
from tests.support.spark.jvm import java
from tests.support.waiting import wait_for

FORMAT_S = 120
END_S = 60


def write_conf(folder: Path, settings: Mapping[str, str], files: Sequence[str]) -> None:
    """Write the same settings into files of a configuration.

    Args:
        folder: Where processes are led by `HADOOP_CONF_DIR`; it is made.
    """
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    folder.mkdir()
    for name in files:
        text = f"<configuration>\n{properties}</configuration>\n"
        (folder / name).write_text(text, encoding="utf-8")


def hadoop(folder: Path, options: Sequence[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a class of Hadoop to its end."""
    done = subprocess.run(
        _command(folder, options, words), env=_environment(folder), cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=FORMAT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(words)}: {(done.stdout + done.stderr)[-3000:]}"
    return done


@contextmanager
def running(
    folder: Path, options: Sequence[str], daemons: Sequence[str], ready: Callable[[], bool]
) -> Iterator[None]:
    """Run daemons until the end of the `with`; they are ready at its beginning.

    Args:
        folder: With the configuration in `conf`; logs go there, one for each class.
        daemons: Their classes, in the order of their start. They end in the other one.
    """
    processes: dict[Path, subprocess.Popen[bytes]] = {}

    def ready_or_ended() -> bool:
        for log, process in processes.items():
            assert process.poll() is None, f"{log.stem} ended: {log.read_text(errors='replace')[-3000:]}"
        return ready()

    try:
        for name in daemons:
            log = folder / f"{name.rpartition('.')[2]}.log"
            with log.open("wb") as output:
                processes[log] = subprocess.Popen(
                    _command(folder, options, [name]), env=_environment(folder), cwd=folder,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                )  # fmt: skip
        wait_for(f"daemons whose logs are in {folder}", ready_or_ended)
        yield
    finally:
        for process in reversed(processes.values()):
            process.terminate()  # a node manager ends its containers
        for process in reversed(processes.values()):
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def get_json(url: str) -> Mapping[str, Any]:
    """What a daemon's web server answers.

    Raises:
        OSError: It does not, or with an error.
        ValueError: That is not JSON.
    """
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: Mapping[str, Any] = json.load(answer)
    return found


def _command(folder: Path, options: Sequence[str], words: Sequence[str]) -> list[str]:
    of_spark = find_installation().spark_home / "jars"
    found = [str(next(of_spark.glob(f"hadoop-client-{one}-*.jar"))) for one in ("api", "runtime")]
    found += [str(one) for one in of_spark.glob("jcl-over-slf4j-*.jar")]
    classpath = ":".join([str(folder / "conf"), f"{YARN.jars()}/*", *found])
    return [java(), *options, "-cp", classpath, *words]


def _environment(folder: Path) -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    conf = str(folder / "conf")
    return {**kept, "HADOOP_CONF_DIR": conf, "YARN_CONF_DIR": conf}
