"""A helper beside the application."""

HERE = "found beside the application"
