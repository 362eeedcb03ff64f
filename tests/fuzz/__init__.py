"""Fuzzers for every parser of foreign bytes: `make test-fuzz`, and for a moment each in `make test`."""
