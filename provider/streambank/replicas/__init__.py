"""Replicas: other repositories that hold the same savepoints, each whole by itself.

`replicate` fills them, `status` tells how far each is and what it costs, `repair` brings back from one what
another has lost.
"""
