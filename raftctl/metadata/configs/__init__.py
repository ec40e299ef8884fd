"""Configs that change while a cluster runs: of topics, brokers, groups and client metrics.

* `topic`: the keys of a topic with types, bounds and defaults; `TopicConfig` is what is in
  force;
* `dynamic`: the keys of brokers and groups, and the checks of an AlterConfigs request;
* `client_metrics`: the keys of a subscription to the metrics of clients;
* `listeners`: the keys of one listener of a broker: its stores and its limits.

A topic's override wins over the broker's own key, and that over Kafka's default. Overrides
are strings in the image and are checked before they become records. A reader of an image
parses them leniently: it ignores a key that it does not know, since a newer controller may
have written it.

Invariants: a value that a record holds is valid for the release that wrote it. Times are in
milliseconds and sizes in bytes, unless a key's name says otherwise.

The package decides what is valid, not what follows from a change; elections after a change of
`min.insync.replicas` are the controller's.

Sources: Kafka 4's configuration reference; KIP-226, KIP-339 (dynamic configs), KIP-848
(groups), KIP-1030 (bounds), KIP-714 (client metrics).
"""
