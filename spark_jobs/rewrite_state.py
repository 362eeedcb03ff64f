"""The program that spark-submit runs to rewrite state: `streambank_spark.programs.rewrite_state`.

    spark-submit rewrite_state.py --plan FILE --report FILE

The packages come from the installation, from `--py-files`, or from the checkout that this file is in.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("streambank_spark") is None:
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "provider"))

from streambank_spark.programs.rewrite_state import main

if __name__ == "__main__":
    sys.exit(main())
