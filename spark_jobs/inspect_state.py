"""The program that spark-submit runs to find the largest keys: `streambank_spark.programs.inspect_state`.

    spark-submit inspect_state.py --checkpoint DIR [--by EXPRESSION] [--top N] [--report FILE]
    spark-submit inspect_state.py --savepoint ID -r REPOSITORY [--against EARLIER]

The packages come from the installation, from `--py-files`, or from the checkout that this file is in.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("streambank_spark") is None:
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "provider"))

from streambank_spark.programs.inspect_state import main

if __name__ == "__main__":
    sys.exit(main())
