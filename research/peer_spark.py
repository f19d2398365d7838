"""The Spark recipe of docs/guides/run/bulk.md, run in an environment with pyspark: python peer_spark.py IN OUT."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from resift.batch import EmbedWork
from resift.batch.reading import add_row_numbers


def embed(batches: Iterator[Any]) -> Iterator[Any]:
    """Embed the rows of one partition."""
    work, first = EmbedWork(), 0
    for batch in batches:
        yield work(add_row_numbers(batch, first)).drop_columns(["row"])
        first += batch.num_rows


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "64")
    frame = spark.read.parquet(sys.argv[1]).repartition(4)
    done = frame.mapInArrow(embed, "id string, vector array<float>, error string")
    done.write.mode("overwrite").parquet(sys.argv[2])
    spark.stop()


if __name__ == "__main__":
    main()
