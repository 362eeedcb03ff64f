"""`streambank job compact seen`, but somebody spoils the state of the new generation before it starts."""

from __future__ import annotations

import sys
from typing import Any

from streambank.__main__ import main
from streambank.control.control import JobControl
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.spec import LaunchSpec
from streambank.storage import local_path

submit = LocalLauncher.submit


def spoil_and_submit(self: LocalLauncher, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
    if spec.queries["main"].generation == 2:
        folder = local_path(spec.queries["main"].checkpoint)
        assert folder is not None
        for path in (folder / "state" / "0").glob("[0-9]*/*"):
            if path.suffix in (".zip", ".snapshot", ".delta", ".changelog"):
                path.write_bytes(b"spoilt")
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
                print("spoilt", path.name, file=sys.stdout)
        # A batch with data, or Spark would not look at the state.
        (folder.parent / "in" / "spoilt").write_text("1\n")
    handle: Any = submit(self, job, control, spec)
    return handle  # type: ignore[no-any-return]  # as the method's


LocalLauncher.submit = spoil_and_submit  # type: ignore[method-assign]  # the fault
sys.argv = [
    "streambank", "job", "compact", "seen", "--where", "key.number % 5 = 0", "--jobs", sys.argv[1],
    "--spark-conf", "spark.driver.memory=700m",
]  # fmt: skip
sys.exit(main())
