"""The checker of logs: what producers sent and consumers polled, by key (a partition of a topic).

    send       [["send", key, value]] becomes [["send", key, [offset, value]]], offset or nil
    poll       [["poll"]] becomes [["poll", {key: [[offset, value], ...]}]]
    txn        several of both in one transaction
    final-poll a poll that begins at the start of every key
    assign, subscribe   a list of keys
    commit, committed   {key: offset} of a consumer group, written and read

Values are unique in a key. Source: `jepsen.tests.kafka`, whose names the anomalies have.
"""
