"""Spark's settings of a job as it declares them: sizes, switches, and how much heap its executors have.

What a cluster's own defaults add is not known here, so each answer says whether it was declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streambank.core.units import spark_bytes
from streambank.declaration.declaration import Job

MIB = 1 << 20
DEFAULT_HEAP_BYTES = 1 << 30
"""`spark.driver.memory` and `spark.executor.memory` where they are not set."""
RESERVED_BYTES = 300 * MIB
"""What Spark leaves out of its own accounting (UnifiedMemoryManager)."""
DEFAULT_FRACTION = 0.6
"""`spark.memory.fraction`: what Spark takes for execution and caching of the rest."""
MIN_OVERHEAD_BYTES = 384 * MIB
DEFAULT_OVERHEAD_FACTOR = 0.1

_CONTAINERS = ("yarn", "k8s")


@dataclass(frozen=True, slots=True)
class SparkConf:
    """A job's settings."""

    master: str
    declared: Mapping[str, str]

    @property
    def is_local(self) -> bool:
        """Whether everything runs in the driver's own JVM."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def in_containers(self) -> bool:
        """Whether each executor is ended when it takes more memory than heap and overhead."""
        return self.master.startswith(_CONTAINERS)

    @property
    def heap_setting(self) -> str:
        """The setting of the heap that state lies in."""
        return "spark.driver.memory" if self.is_local else "spark.executor.memory"

    @property
    def heap_bytes(self) -> int:
        """The heap of each JVM that holds state; Spark's default where it is not declared."""
        return self.size_bytes(self.heap_setting, MIB) or DEFAULT_HEAP_BYTES

    @property
    def user_bytes(self) -> int:
        """What Spark leaves of a heap to objects that it does not account for, as HDFS-backed state is."""
        fraction = self.number("spark.memory.fraction")
        share = 1 - (DEFAULT_FRACTION if fraction is None else fraction)
        return int(max(0, self.heap_bytes - RESERVED_BYTES) * share)

    @property
    def executors(self) -> int | None:
        """How many JVMs share the state; None where that is not declared, or changes by itself."""
        if self.is_local:
            return 1
        if self.is_on("spark.dynamicAllocation.enabled"):
            return None
        return self.whole("spark.executor.instances")

    @property
    def overhead_bytes(self) -> int:
        """What a container has beside the heap (`spark.executor.memoryOverhead`)."""
        declared = self.size_bytes("spark.executor.memoryOverhead", MIB)
        if declared is not None:
            return declared
        factor = self.number("spark.executor.memoryOverheadFactor")
        return max(MIN_OVERHEAD_BYTES, int(self.heap_bytes * (factor or DEFAULT_OVERHEAD_FACTOR)))

    def said(self, name: str) -> str:
        """For people: where the value of a setting comes from."""
        value = self.declared.get(name)
        return f"{name}={value}" if value is not None else f"{name} is not declared, so Spark's default"

    def size_bytes(self, name: str, unit: int = 1) -> int | None:
        """A size, in `unit` where it names none; None where it is not declared or cannot be read."""
        return spark_bytes(self.declared.get(name, ""), unit)

    def whole(self, name: str) -> int | None:
        """A whole number; None where it is not declared or cannot be read."""
        text = self.declared.get(name, "").strip()
        return int(text) if re.fullmatch(r"-?[0-9]+", text) else None

    def number(self, name: str) -> float | None:
        """A number; None where it is not declared or cannot be read."""
        text = self.declared.get(name, "").strip()
        return float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else None

    def is_on(self, name: str) -> bool:
        return self.declared.get(name, "").strip().lower() == "true"


def conf_of(job: Job) -> SparkConf:
    """The settings of a declared job; its master is the launcher's name where only that knows the master."""
    master = job.launch.master or job.launch.on if job.launch.is_registered else job.master
    return SparkConf(master, job.spark)
