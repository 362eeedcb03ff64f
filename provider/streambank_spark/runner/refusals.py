"""What cannot be run, refused by name before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from streambank.core.errors import InputError, RefusedError
from streambank.driver.outputs import refuse_left
from streambank.storage import normalize_location

_CONNECT_HINT = "Run it with classic PySpark: no remote(...), no SPARK_REMOTE, and spark.api.mode=classic."


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse a driver that is not one of classic PySpark under spark-submit.

    Raises:
        RefusedError: Spark Connect (code `connect-not-supported`), no spark-submit (`not-spark-submit`), or
            Python threads without a JVM thread of their own (`threads-not-pinned`).
    """
    remote = environment.get("SPARK_REMOTE") or environment.get("SPARK_CONNECT_MODE_ENABLED")
    if remote or environment.get("SPARK_API_MODE", "").lower() == "connect":
        raise connect_refused("the environment asks for it")
    if "PYSPARK_GATEWAY_PORT" not in environment:
        raise RefusedError(
            "The runner was not started by spark-submit, so there is no JVM to watch.",
            code="not-spark-submit",
            hint="spark-submit run_query.py --job NAME -- app.py ARGS, or streambank job start NAME.",
        )
    # PySpark's own test in java_gateway.py. The lock that a stop takes in the JVM belongs to a JVM thread.
    if environment.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise RefusedError(
            "PYSPARK_PIN_THREAD is off, so the runner cannot stop a query at a batch boundary: each of its "
            "calls might run in another thread of the JVM.",
            code="threads-not-pinned",
            hint="Remove PYSPARK_PIN_THREAD from the driver's environment, or set it to true.",
        )


def connect_refused(why: str) -> RefusedError:
    """The refusal of Spark Connect: its queries run in a server that the runner neither sees nor stops."""
    return RefusedError(
        f"The runner does not support Spark Connect ({why}).",
        code="connect-not-supported",
        hint=_CONNECT_HINT,
    )


def refuse_connect_sessions() -> None:
    """Make `SparkSession.builder` refuse to open a Connect session."""
    from pyspark.sql import SparkSession

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def open_session(self: Any, *args: Any, **kwargs: Any) -> Any:
            options = self._options
            if "spark.remote" in options or str(options.get("spark.api.mode", "")).lower() == "connect":
                raise connect_refused("the application's session is a Connect session")
            check_environment(os.environ)
            return original(self, *args, **kwargs)

        return open_session

    def remote(_self: Any, _url: str) -> NoReturn:
        raise connect_refused("the application asks for a remote session")

    builder: Any = SparkSession.Builder
    original_config = builder.config

    def config(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Spark would refuse it too, beside the master that spark-submit sets, but say something else.
        named = [*args[:1], kwargs.get("key"), *(kwargs.get("map") or {})]
        if "spark.remote" in [name for name in named if isinstance(name, str)]:
            raise connect_refused("the application sets spark.remote")
        return original_config(self, *args, **kwargs)

    builder.remote = remote
    builder.config = config
    builder.getOrCreate = guard(builder.getOrCreate)
    builder.create = guard(builder.create)


def refuse_dstreams() -> None:
    """Make `StreamingContext` refuse to be made, or to be read from its own checkpoint."""
    from pyspark.streaming import StreamingContext

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RefusedError(
            "The runner does not support DStreams (StreamingContext): they have no checkpoint of a query.",
            code="dstream-not-supported",
            hint="Write the application with Structured Streaming (spark.readStream), or run it without "
            "Streambank.",
        )

    context: Any = StreamingContext
    context.__init__ = refuse
    context.getOrCreate = refuse


def check_trigger(arguments: Mapping[str, Any]) -> None:
    """Refuse triggers without batches that could be committed one by one.

    Raises:
        RefusedError: Continuous processing (code `continuous-not-supported`) or real-time mode
            (`real-time-not-supported`).
    """
    refused = {"continuous": "Continuous processing", "realTime": "Real-time mode"}
    for argument, what in refused.items():
        if arguments.get(argument) is not None:
            code = "continuous-not-supported" if argument == "continuous" else "real-time-not-supported"
            raise RefusedError(
                f"The runner does not support {what}: its checkpoints have no batches.",
                code=code,
                hint="Use the trigger processingTime, availableNow or once.",
            )


def check_option(key: str, value: Any) -> None:
    """Refuse writer options under which the checkpoint runs behind the sink.

    Raises:
        RefusedError: Asynchronous progress tracking (code `async-progress-not-supported`).
    """
    if key.lower() == "asyncprogresstrackingenabled" and str(value).lower() == "true":
        raise RefusedError(
            "The runner does not support asynchronous progress tracking: its checkpoint is behind its sink.",
            code="async-progress-not-supported",
            hint="Remove the option asyncProgressTrackingEnabled.",
        )


def check_output(path: str | None, new_sinks: Mapping[str, str]) -> None:
    """Refuse the output from which a restore took a query away (`refuse_left`).

    Args:
        path: Where the query is to write, in the application's words; None for none.
    """
    try:
        place = normalize_location(path) if path else None
    except InputError:
        return  # Spark will say what it thinks of it
    refuse_left(place, new_sinks)
