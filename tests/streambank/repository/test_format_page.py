"""The specification shows what the code writes: the same fields in the same order."""

from __future__ import annotations

import json
import re

from streambank.repository.holds import add_hold, hold_key
from streambank.repository.objects.packs import TRAILER_BYTES, PackBuilder
from streambank.repository.repository import Repository
from streambank.repository.trash import condemn
from streambank.storage.memory import MemoryStore
from tests.support.paths import ROOT
from tests.support.repository.repositories import save

PAGE = (ROOT / "docs/formats/repository.md").read_text(encoding="utf-8")


def test_the_samples_have_the_fields_that_are_written() -> None:
    repository = Repository.open(MemoryStore(), create=True)
    manifest = save(repository)
    repository.pin(manifest.job, manifest.savepoint)
    store = repository.store
    held = hold_key(manifest.job, manifest.savepoint)
    add_hold(store, "blake3", held, "restore", {})
    written = [
        json.loads(store.read(key))
        for key in (
            "repository.json",
            f"savepoints/flights/{manifest.savepoint}.json",
            f"marks/flights/{manifest.savepoint}/pin-0000000001.json",
            held,
            f"condemned/{condemn(store, 'blake3', ['objects/86/86c0'], {}).id}.json",
        )
    ]
    samples = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]

    assert [list(sample) for sample in samples] == [list(record) for record in written]
    assert list(samples[1]["files"][0]) == list(written[1]["files"][0])


def test_the_sample_trailer_is_one() -> None:
    (line,) = re.findall(r"^streambank-pack \d\d .*$", PAGE, re.MULTILINE)
    assert len(line) + 1 == TRAILER_BYTES == 108
    _, chunks = PackBuilder("blake3").finish()
    assert re.sub(r"[0-9a-f]{64}|\d{16}", "", chunks[-1].decode().rstrip()) == re.sub(
        r"[0-9a-f]{64}|\d{16}", "", line
    )
