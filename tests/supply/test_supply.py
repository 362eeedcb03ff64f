"""What the project is made of: the list, the question for vulnerabilities, and images by digest."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from supply import images, vulnerabilities
from supply.lock import pins
from supply.sbom import sbom
from tests.support.paths import ROOT

DIGEST = f"sha256:{'ab' * 32}"


def test_the_list_has_every_pin_with_its_hashes_and_is_valid() -> None:
    found = list(pins())
    text = sbom(found)
    said = json.loads(text)
    assert (said["bomFormat"], said["specVersion"]) == ("CycloneDX", "1.6")
    listed = {(one["name"], one["version"]): one for one in said["components"]}
    assert set(listed) == {(pin.name, pin.version) for pin in found} and ("pyspark", "4.3.0") in listed
    spark = next(pin for pin in found if pin.name == "pyspark")
    assert [one["content"] for one in listed["pyspark", "4.3.0"]["hashes"]] == sorted(spark.hashes)
    assert {"uv"} <= {name for name, _ in listed}, "what installs the rest, too"
    assert "://" not in json.dumps([one["purl"] for one in listed.values()])


def fake_audit(monkeypatch: pytest.MonkeyPatch, answer: str | None, error: str = "") -> None:
    class Done:
        stderr = error

    def run(command: list[str], **options: object) -> Done:
        assert "--require-hashes" in command
        if answer is not None:
            Path(command[command.index("--output") + 1]).write_text(answer)
        return Done()

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}', 0, "no vulnerability is known"),
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]}', 1, "a 1: CVE-1"),
        ('{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', 2, "did not answer for 1 of 1"),
        (None, 2, "did not answer: no route"),
        ("nonsense", 2, "did not answer: no route"),
    ],
)
def test_no_answer_is_not_none_known(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, code: int, said: str
) -> None:
    fake_audit(monkeypatch, answer, "Traceback\nno route")
    found, text = vulnerabilities.audit()
    assert found == code and said in text


def stack_in(folder: Path) -> Path:
    (folder / "docker").mkdir(parents=True)
    for name in images.FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def fake_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"#!/bin/sh\n{script}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}{os.pathsep}{os.environ['PATH']}")


def test_each_image_gets_the_digest_behind_its_tag_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stack_in(tmp_path / "checkout")
    fake_docker(tmp_path, monkeypatch, f'echo "$4" >> {tmp_path}/asked; echo {DIGEST}')
    images.main(stack)
    text = "".join((stack / name).read_text() for name in images.FILES)
    assert len(re.findall(f"@{DIGEST}", text)) == 4, "Python, Postgres and twice Kafka"
    asked = (tmp_path / "asked").read_text().split()
    assert all(re.fullmatch(r"[\w/.-]+:[\w.-]+", image) for image in asked)
    before = {name: (stack / name).read_text() for name in images.FILES}
    images.main(stack)
    assert {name: (stack / name).read_text() for name in images.FILES} == before


@pytest.mark.parametrize("script", ["echo no such host >&2; exit 1", "echo latest"])
def test_where_the_registry_does_not_answer_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    stack = stack_in(tmp_path / "checkout")
    fake_docker(tmp_path, monkeypatch, script)
    with pytest.raises(SystemExit) as caught:
        images.main(stack)
    assert "did not answer for python:" in str(caught.value)
    assert "@sha256" not in "".join((stack / name).read_text() for name in images.FILES)
