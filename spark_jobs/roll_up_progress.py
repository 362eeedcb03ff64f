"""What spark-submit gets to roll up progress records to Parquet; `streambank_spark.programs.roll_up` works.

    spark-submit roll_up_progress.py --jobs streaming_jobs.toml --output DIR [--job NAME]
    spark-submit roll_up_progress.py --control s3://bucket/savepoints/jobs --output s3://bucket/rolled-up

The packages come from the installation, from `--py-files`, or from the checkout that this file lies in.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("streambank_spark") is None:
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "provider"))

from streambank_spark.programs.roll_up import main

if __name__ == "__main__":
    sys.exit(main())
