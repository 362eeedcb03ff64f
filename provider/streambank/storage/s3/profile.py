"""A session of boto3 that a profile alone leads to services.

boto3 takes an endpoint from `AWS_ENDPOINT_URL` and its like before it looks at the profile, and the service
that assumes the profile's role (STS) from there as well. Where some buckets are on another service, those
variables are about the other buckets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def session_of_profile() -> Any:
    """A session of botocore that takes endpoints from its profile, else Amazon's own.

    That holds for each client that it makes, those that fetch credentials included. It has a method
    `endpoint_url(service)` besides: what the profile says of a service, None for Amazon's own.
    """
    return _session_class()()


@lru_cache(maxsize=1)
def _session_class() -> Any:
    from botocore.config import Config
    from botocore.configprovider import ConfiguredEndpointProvider
    from botocore.session import Session

    class ProfileSession(Session):  # type: ignore[misc]  # botocore has no types
        def endpoint_url(self, service: str) -> str | None:
            said = self.get_scoped_config()
            found = ConfiguredEndpointProvider(self.full_config, said, service, environ={}).provide()
            return str(found) if found else None

        def create_client(self, service_name: str, *args: Any, **options: Any) -> Any:
            if options.get("endpoint_url") is None:
                options["endpoint_url"] = self.endpoint_url(service_name)
            if options["endpoint_url"] is None:
                amazon, given = Config(ignore_configured_endpoint_urls=True), options.get("config")
                options["config"] = amazon if given is None else given.merge(amazon)
            return super().create_client(service_name, *args, **options)

    return ProfileSession
