"""Make the checkpoints of this folder: of the programs in spark_jobs/patterns/wrong, as they leave them.

    PYTHONPATH=.:provider .venv/bin/python tests/data/wrong/make.py --work DIR [program ...]

An archive `<program>.tar.xz` holds `checkpoint/`. Those that are there were made by Spark 4.3.0.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import sys
from pathlib import Path

from tests.support.checkpoint.recorded import maker
from tests.support.checkpoint.wrong_programs import CHECKPOINTS, WRONG, write_input


def main() -> None:
    """Run the programs one after the other, and pack what they leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("programs", nargs="*", default=CHECKPOINTS)
    options = parser.parse_args()
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from tests.support.spark.sessions import own_spark

    for program in options.programs:
        folder = options.work / program
        shutil.rmtree(folder, ignore_errors=True)
        write_input(program, folder / "input")
        own_spark()
        sys.argv = [program, "--input", str(folder / "input"), "--output", str(folder / "output")]
        sys.argv += ["--checkpoint", str(folder / "packed/checkpoint"), "--once"]
        runpy.run_path(str(WRONG / f"{program}.py"), run_name="__main__")
        maker().pack(folder / "packed", Path(__file__).parent / f"{program}.tar.xz")
        print(program, flush=True)


if __name__ == "__main__":
    main()
