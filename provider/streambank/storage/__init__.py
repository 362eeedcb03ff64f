"""Where bytes live: one contract (`Store`), and the stores that keep it."""
