"""What the Spark face adds to the command line: `streambank state ...`, and `verify --level deep`.

These modules load without pyspark, so that help is there without it; what reads state loads it, after
`require_pyspark` has settled which one that is.
"""
