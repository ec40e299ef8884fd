"""Commands that read or format the files of nodes that do not run.

`storage` formats directories, `log` prints segments and snapshots, `verify` checks that the
logs of several nodes agree, and `metadata` browses the image of a snapshot, of a log or of a
live controller. Nothing but `storage format` writes; a file that is damaged is named with its
offset. `log_files`, `verify` and `voters` are also read by the harness, which judges nodes by
their disks.
"""
