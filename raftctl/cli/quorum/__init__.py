"""`raftctl quorum`: shows and changes the voters of the metadata quorum.

`describe` has the columns of Kafka's `kafka-metadata-quorum`. Adding, removing and handing over
leadership go to the leader (KIP-853). `force-recover` rewrites the voters on the disk of a
stopped node when a majority is lost for good, and can lose committed records.
"""
