"""A cluster of real node processes on this machine, kept in one directory.

    <directory>/cluster.json                 the layout: ids, ports, overrides
    <directory>/<node>/node.properties       what the node is started with
    <directory>/<node>/data/                 its log directory
    <directory>/<node>/node.log              what it wrote to stdout and stderr
    <directory>/<node>/process.json          the process last started

`layout` is pure, `processes` starts and signals, `launcher` starts faster, `status` asks the
controllers, `image` fetches their metadata, `cluster` puts them together.
"""
