"""The program that spark-submit runs instead of the application; `streambank_spark.runner` does the work.

    spark-submit run_query.py --launch SPEC
    spark-submit run_query.py --job NAME [--jobs FILE] -- app.py ARGS

The packages come from the installation, from `--py-files`, or from the checkout that this file is in.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("streambank_spark") is None:
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "provider"))

from streambank_spark.runner.entry import main

if __name__ == "__main__":
    sys.exit(main())
