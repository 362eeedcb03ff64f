"""Figures: take, verify and restore against a plain copy, and what takes cost a running query."""
