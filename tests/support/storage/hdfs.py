"""HDFS on the loopback device: a real NameNode and a DataNode, for tests and benchmarks."""

from __future__ import annotations

import getpass
import urllib.error
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.storage.hadoop_daemons import get_json, hadoop, running, write_conf
from tests.support.storage.s3_servers import free_ports

JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A running HDFS; blocks have one replica.

    Attributes:
        namenode: Host and port of the NameNode, for clients that speak its own protocol, such as Spark.
        web: Host and port of its web server, for WebHDFS.
        user: The superuser, who started it.
    """

    namenode: str
    web: str
    folder: Path
    user: str

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.hadoop.dfs.replication": "1"}  # it is the client that says how many

    def location(self) -> str:
        """A directory that is not there yet, as Spark spells it."""
        return f"hdfs://{self.namenode}/{uuid.uuid4().hex}"

    def on_web(self, location: str, user: str = "") -> str:
        """The same directory, as a client of WebHDFS spells it: of the superuser, or of another one."""
        return f"webhdfs://{user or self.user}@{self.web}/{self._path(location)}"

    def room(self, location: str) -> tuple[int, int]:
        """Bytes, without those of replicas, and files below a directory; none where it is not there."""
        try:
            found = get_json(
                f"http://{self.web}/webhdfs/v1/{quote(self._path(location))}?op=GETCONTENTSUMMARY"
            )
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return 0, 0
            raise
        return int(found["ContentSummary"]["length"]), int(found["ContentSummary"]["fileCount"])

    def shell(self, *words: str) -> str:
        """What a command of `hadoop fs` says."""
        return hadoop(self.folder, JAVA, "org.apache.hadoop.fs.FsShell", *words).stdout

    def ready(self) -> bool:
        """Whether the NameNode takes writes, and has its DataNode."""
        try:
            found = get_json(f"http://{self.web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
            (state,) = found["beans"]
        except (OSError, ValueError):
            return False
        return bool(state["FSState"] == "Operational" and state["NumLiveDataNodes"] == 1)

    def _path(self, location: str) -> str:
        return location.removeprefix(f"hdfs://{self.namenode}/")


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with run_hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@contextmanager
def run_hdfs(folder: Path) -> Iterator[Hdfs]:
    """HDFS until the end of the `with`."""
    rpc, web, *of_datanode = (f"127.0.0.1:{port}" for port in free_ports(5))
    hdfs = Hdfs(rpc, web, folder, getpass.getuser())
    settings = {
        "fs.defaultFS": f"hdfs://{rpc}",
        "dfs.replication": "1",
        "dfs.namenode.rpc-address": rpc,
        "dfs.namenode.http-address": web,
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.namenode.safemode.extension": "0",
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.datanode.hostname": "127.0.0.1",
        **{
            f"dfs.datanode.{name}address": at
            for name, at in zip(("", "http.", "ipc."), of_datanode, strict=True)
        },
        "hadoop.tmp.dir": str(folder / "tmp"),
    }
    write_conf(folder / "conf", settings, ("core-site.xml", "hdfs-site.xml"))
    hadoop(folder, JAVA, NAMENODE, "-format", "-nonInteractive")
    with running(folder, JAVA, (NAMENODE, DATANODE), hdfs.ready):
        yield hdfs
