"""Repositories for tests: small savepoints, and damage to them."""
