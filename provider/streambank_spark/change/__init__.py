"""`state transform` and `state bootstrap`: rows of state with other values, and from a table.

How a user sees them: docs/howto/make-state.md.
"""
