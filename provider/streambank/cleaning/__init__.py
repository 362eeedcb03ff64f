"""Directories that work on a job has left: what they are, what needs them, and how the others go.

* `left_directories`: each one that is found, with its bytes and what still needs it; only looks
* `needs`: drivers that may still write into one, savepoints that could be healed from one
* `clean`: which of them go by a policy, and their removal
"""
