"""Which client properties of Kafka are secrets."""

from __future__ import annotations

import re

_SECRET = re.compile(r"(password|passphrase|secret|token|key\.pem|jaas\.config|oauthbearer\.config)$")


def is_secret(name: str) -> bool:
    """Whether a client property holds a secret, such as `sasl.password`, in capitals or not."""
    return _SECRET.search(name.lower()) is not None
