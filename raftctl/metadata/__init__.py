"""The cluster's metadata: its vocabulary, its state and the requests that change it.

The metadata log is a sequence of records. Replaying them gives an image: the brokers, topics,
partitions, configs, features, keys and security entries of the cluster at one offset. Voters,
brokers and offline tools share these types; each of them replays the same records to the same
image.

    requests ──controller──▶ records ──log──▶ delta ──apply──▶ image

Packages and modules, lowest first:

* `records`: the records of the log and their constants;
* `topic_names`: well-formed, reserved and colliding names of topics;
* `image`: the immutable image and the delta that leads from one image to the next;
* `requests`: requests to the active controller and its responses;
* `codec`: records to bytes and back, also by whole batches of partitions;
* `configs`: configs of topics, brokers and groups that change while a cluster runs;
* `features`: feature levels, and what each level allows;
* `acls`: which access control entries a filter matches;
* `placement`: the brokers of a new partition's replicas.

Everything here is pure: no clock, no I/O, no randomness but the generator that is passed in.
This package knows no controller, no quorum and no broker. Its invariant is determinism: equal
records in equal order give equal images on every node, and equal images give equal records in
a snapshot.

Sources: KIP-500 (the metadata log), KIP-631 (records and image).
"""
