"""Savepoints: immutable, verified copies of what Spark needs to resume after one committed batch.

`repository` holds them, `manifest` says what one is; `take`, `verify` and `layout` make, prove and bring back
one.
"""
