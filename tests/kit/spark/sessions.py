"""Spark that is quick with what takes moments, for tests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""As JAVA_TOOL_OPTIONS: a JVM that does not optimize."""
SQL_SETTINGS = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Expressions are evaluated as they are, and not compiled first."""


@contextmanager
def quick_session(master: str) -> Iterator[SparkSession]:
    """A session that commands of this process find running."""
    from jepsen.spark.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", JVM_OPTIONS)
        with spark_session(master, "1g") as spark:
            for key, value in SQL_SETTINGS.items():
                spark.conf.set(key, value)
            yield spark
