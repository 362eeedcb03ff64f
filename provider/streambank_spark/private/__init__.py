"""All that is private to Spark: the folder to open at each Spark release.

Each function checks the version first, and what it did is verified afterwards.
"""
