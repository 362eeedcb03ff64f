"""`streambank state ...`: look inside the state of a savepoint, or of a checkpoint."""

from __future__ import annotations

import typer

from streambank_spark.commands import compare as comparing
from streambank_spark.commands import erase as erasing
from streambank_spark.commands import fingerprints
from streambank_spark.commands import read as reading
from streambank_spark.commands import rewrite as rewriting
from streambank_spark.commands import validate as validating

app = typer.Typer(
    name="state",
    help="Look inside the state of a savepoint, or of a checkpoint's committed batch; Spark reads it.",
    no_args_is_help=True,
)
for module in (fingerprints, reading, comparing, validating, rewriting, erasing):
    module.register(app)
