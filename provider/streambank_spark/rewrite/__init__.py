"""Rewriting of state: other partitions, another schema, fewer keys; proven before anybody starts from it."""
