"""State that a person makes: rows with other values, and rows from a table (docs/howto/make-state.md)."""
