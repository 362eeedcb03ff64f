"""Alerts: what is sent to whom, and what was sent already."""
