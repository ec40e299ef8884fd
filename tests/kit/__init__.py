"""What tests of several folders share: disks, clients and loads, histories, Spark.

    disk             a disk in memory that can crash, and a worker that runs when the test says so
    kv_client        keys and values over the RPC of controllers
    kv_load          clients that put and read keys, and record what they saw
    invariants       checks the invariants of the broker's cores after each event
    checker_cases    each anomaly of each checker, beside a history that nearly has it
    topics           topics made through librdkafka
    pieces           messages as bytes, and back
    example_broker   the plug-in that docs/how-to/write-a-broker.md shows
    spark            histories judged on Spark and in one process

A helper of one folder stays in that folder.
"""
