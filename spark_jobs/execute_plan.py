"""The program that spark-submit runs for a plan of Streambank: `streambank_spark.programs.execute_plan`.

    spark-submit --py-files streambank.zip [--archives packages.zip#streambank_packages] \
        execute_plan.py --plan PLAN --report REPORT

Both are files of the machine that runs the driver. The packages come from the installation, from
`--py-files`, or from the checkout that this file is in.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("streambank_spark") is None:
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "provider"))

from streambank_spark.programs.execute_plan import main

if __name__ == "__main__":
    sys.exit(main())
