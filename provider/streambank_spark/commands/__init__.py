"""What the Spark face adds to the command line: `streambank state ...`, and `verify --level deep`.

These modules load without pyspark, so that help is there without it; what reads state loads it. Which one
that is must be settled before any of them does.
"""

from __future__ import annotations

from contextlib import suppress

from streambank.core.errors import InputError
from streambank_spark.private.own_pyspark import use_own_pyspark

with suppress(InputError):  # there is none, which a verb that needs it says
    use_own_pyspark()
