"""Findings before they hurt: about what is installed here, and about a checkpoint.

* `installation`: Python, Java, PySpark, containers, limits of this machine
* `checkpoint`: damage, garbage, sinks that are ahead, and how much time a take has
"""
