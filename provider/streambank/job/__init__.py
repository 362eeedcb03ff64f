"""Declared streaming jobs: what was declared, what is meant to run, what does run, and who may change it.

Everything a job remembers lies as small JSON records under `<control>/<job>/` (docs/formats/job.md). Two
things decide who may act: the *operation lock* (one of start, stop, restore, ... at a time) and the *lease*
    (one driver at a time).
"""
