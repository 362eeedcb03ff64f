"""The verbs on a declared job: started, stopped, restarted, saved, and what is known of it.

Two things decide who may act: the *operation lock* (one of start, stop, restore, ... at a time) and the
*lease* (one driver at a time); both are claims (control/claims.py).
"""
