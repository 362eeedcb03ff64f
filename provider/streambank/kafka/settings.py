"""How a Kafka cluster is reached: what a query used, what its job declares, and what was said by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streambank.core.environment import fill_in
from streambank.core.errors import StorageError, StreambankError
from streambank.kafka.secrets import is_secret

if TYPE_CHECKING:
    from streambank.kafka.broker import Broker, Patience

ASK_TIMEOUT_S = 5.0
"""How long a cluster is waited for, all questions together: whoever asks after that is told at once."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """What a job declares in `[jobs.NAME.kafka]`, or a person said.

    Attributes:
        bootstrap: `host:port,...`; None for what the query itself used.
        servers: The same for each of several clusters: what the query used to what is asked instead. Comes
            before `bootstrap`, which stands for all others.
        config: Client properties of librdkafka, such as `security.protocol`. A `${NAME}` in a value (with all
            that core/environment.py knows) is looked up when a cluster is asked, never before, so that no
            secret is held or written anywhere.
    """

    bootstrap: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    def at(self, bootstrap: str | None) -> KafkaConnection:
        """The same with the servers that a person names; none named change nothing."""
        return self if bootstrap is None else replace(self, bootstrap=bootstrap, servers={})

    def may_ask(self, servers: str) -> bool:
        """Whether these servers may get what `config` holds.

        A secret goes to servers that the job declares or a person names, and to no others: what a savepoint
        or a record names is the word of who can write there.
        """
        declared = {self.bootstrap, *self.servers.values()}
        return servers in declared or not any(is_secret(name) for name in self.config)

    def properties(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The client properties with their variables filled in.

        Raises:
            StorageError: A variable is not set (code `kafka-not-reachable`).
        """

        def filled(name: str, value: str) -> str:
            def mistake(what: str, hint: str) -> StorageError:
                said = f"The job's Kafka settings, {name}: {what}."
                return StorageError(said, code="kafka-not-reachable", hint="Set it where this runs.")

            return fill_in(value, variables, mistake)

        return {name: filled(name, value) for name, value in self.config.items()}


Connect = Callable[[str, Mapping[str, str], float], "Broker"]
"""Bootstrap servers, client properties and time-out in seconds to a cluster."""


class Brokers:
    """The clusters that one piece of work asks, each reached once. What failed is not waited for again."""

    def __init__(
        self,
        connection: KafkaConnection | None = None,
        *,
        timeout_s: float = ASK_TIMEOUT_S,
        connect: Connect | None = None,
    ) -> None:
        self._connection = connection or KafkaConnection()
        self._timeout_s = timeout_s
        self._patience: dict[str, Patience] = {}
        self._connect = connect
        self._known: dict[str, Broker | StreambankError] = {}

    def begin(self, *, afresh: bool = False) -> None:
        """Another piece of work begins, with all its time; `afresh` for who did not answer before, too."""
        for patience in self._patience.values():
            patience.renew()
        if afresh:
            self._known.clear()

    def bootstrap(self, recorded: str | None) -> str | None:
        """Which servers are asked: those that were said or declared before those that the query used."""
        said = self._connection
        if recorded is not None and recorded in said.servers:
            return said.servers[recorded]
        # What a savepoint holds are the servers that were asked then.
        return recorded if recorded in said.servers.values() else said.bootstrap or recorded

    def at(self, recorded: str | None) -> Broker:
        """The cluster to ask, where the query used these servers.

        Raises:
            StorageError: Nobody says where it is, it cannot be asked, or the job's login is not for it (codes
                `kafka-not-reachable`, `missing-package`, `kafka-not-declared`).
            InputError: A client property cannot be (code `bad-kafka-config`).
        """
        servers = self.bootstrap(recorded)
        if servers is None:
            raise StorageError(
                "The address of the query's Kafka is not known.",
                code="kafka-not-reachable",
                hint="Name its servers: --kafka HOST:PORT, `kafka` of an Airflow operator, or `bootstrap` in "
                "the job's [kafka] table.",
            )
        if not self._connection.may_ask(servers):
            raise StorageError(
                f"The job's login for Kafka is not sent to {servers}: the job does not name these servers.",
                code="kafka-not-declared",
                hint="If they are yours, declare them in the job's [kafka] table: `bootstrap`, or `servers` "
                "for several clusters. Or name them once: --kafka HOST:PORT, `kafka` of an Airflow operator.",
            )
        if servers not in self._known:
            try:
                self._known[servers] = self._open(servers)
            except StreambankError as error:
                self._known[servers] = error
        found = self._known[servers]
        if isinstance(found, StreambankError):
            raise type(found)(found.message, code=found.code, hint=found.hint)
        return found

    def _open(self, servers: str) -> Broker:
        properties = self._connection.properties(os.environ)
        if self._connect is not None:
            return self._connect(servers, properties, self._timeout_s)
        from streambank.kafka.broker import Patience
        from streambank.kafka.client import connect

        patience = self._patience[servers] = Patience(self._timeout_s)
        return connect(servers, properties, self._timeout_s, patience)
