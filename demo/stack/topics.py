"""Make the stack's topics, once the broker takes them; run again it changes nothing.

    python -m demo.stack.topics HOST:PORT [TOPIC ...]

Part of `make stack`; in docker-compose.yml the service `topics` does the same by Kafka's own tool.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from demo.stack.places import TOPICS

PARTITIONS = 2
POLL_S = 0.5
ASK_TIMEOUT_S = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Make the topics that are named; 1 where the broker did not take them in time."""
    parser = argparse.ArgumentParser(description="Make topics on a Kafka broker.")
    parser.add_argument("servers", metavar="HOST:PORT")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", default=list(TOPICS))
    parser.add_argument("--within", type=float, default=120.0, help="seconds to wait for the broker")
    options = parser.parse_args(argv)
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": options.servers})
    deadline = time.monotonic() + options.within
    for topic in options.topics:
        while problem := make(admin, topic):
            if time.monotonic() > deadline:
                print(f"Topic {topic} could not be made at {options.servers}: {problem}", file=sys.stderr)
                return 1
            time.sleep(POLL_S)
        print(f"Topic {topic} is there")
    return 0


def make(admin: Any, topic: str) -> str:
    """Make a topic, and see it: a broker takes a moment to know of what it has made.

    Returns:
        Why it could not be done, or nothing.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    try:
        new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)
        admin.create_topics([new], request_timeout=ASK_TIMEOUT_S)[topic].result(2 * ASK_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        known = error.args[0].code() if error.args and isinstance(error.args[0], KafkaError) else None
        if known != KafkaError.TOPIC_ALREADY_EXISTS:
            return str(error) or type(error).__name__
    try:
        found = admin.list_topics(timeout=ASK_TIMEOUT_S).topics
    except KafkaException as error:
        return str(error)
    return "" if topic in found and found[topic].partitions else "it does not exist yet"


if __name__ == "__main__":
    sys.exit(main())
