"""The verbs on a declared job: started, stopped, restarted, saved, and what is known of it.

Two things decide who may act: the *operation lock* (one of start, stop, restore, ... at a time) and the
*lease* (one driver at a time); both are claims (control/claims.py).

Where a function takes `control` (the job's records) or `launcher` (where drivers run) and gets none, it is
what the job declares.
"""
