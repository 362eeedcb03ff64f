"""Tables that queries write to, without Spark."""
