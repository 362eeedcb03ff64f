"""The jars of a cluster's machines: what Spark has itself is not put before it."""

from __future__ import annotations

from pathlib import Path

from demo.jars import cluster, pyspark_home

HERE = Path(cluster.__file__).parent


def touched(folder: Path, *names: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in names]
    for path in paths:
        path.touch()
    return paths


def test_a_jar_that_spark_has_in_any_version_is_left_out(tmp_path: Path) -> None:
    touched(
        tmp_path / "spark",
        *("netty-buffer-4.2.13.Final.jar", "jcl-over-slf4j-2.0.17.jar", "commons-pool-1.5.4.jar"),
    )
    found = touched(
        tmp_path / "fetched",
        "io.netty_netty-buffer-4.1.126.Final.jar",
        "commons-logging_commons-logging-1.2.jar",
        "org.apache.commons_commons-pool2-2.13.1.jar",
        "org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar",
    )
    touched(tmp_path / "jars", "of-an-earlier-time.jar")
    (tmp_path / "jars" / found[3].name).symlink_to(tmp_path / "moved.jar")
    folder = cluster.lay_out(found, tmp_path / "jars", tmp_path / "spark")
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in found[2:]]
    assert all(path.resolve().is_file() for path in folder.iterdir())
    before = {path.name: path.lstat().st_ino for path in folder.iterdir()}
    cluster.lay_out(found, folder, tmp_path / "spark")
    assert {path.name: path.lstat().st_ino for path in folder.iterdir()} == before, "Spark may run on them"


def test_of_what_is_fetched_only_what_spark_lacks_is_left(tmp_path: Path) -> None:
    names = [
        line.split()[1].removeprefix("spark/")
        for known in ("s3a.sha256", "kafka.sha256")
        for line in (HERE / known).read_text(encoding="ascii").splitlines()
        if "broker/" not in line
    ]
    found = touched(tmp_path / "fetched", *names)
    folder = cluster.lay_out(found, tmp_path / "jars", pyspark_home() / "jars")
    left_out = {path.name for path in found} - {path.name for path in folder.iterdir()}
    kinds = ("io.netty_", "commons-codec_", "commons-logging_", "org.apache.httpcomponents_")
    assert left_out == {name for name in names if name.startswith(kinds)}
    kept = " ".join(path.name for path in folder.iterdir())
    assert all(name in kept for name in ("hadoop-aws", "awssdk_s3-", "spark-sql-kafka", "kafka-clients"))
