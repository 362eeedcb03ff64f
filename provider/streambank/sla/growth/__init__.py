"""Growth: how fast something grows, and when it reaches its limit."""
