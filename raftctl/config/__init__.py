"""The configuration of a node: Apache Kafka's keys, each defined once (row A1's input).

`load_config(text, overrides)` gives a frozen `NodeConfig`; `keys` holds the definitions.
"""

from raftctl.config.addresses import Listener, Server, Voter
from raftctl.config.keys import RACK_AWARE_SELECTOR
from raftctl.config.load import KEYS, load_config, make_config, warn_on_stderr
from raftctl.config.model import NodeConfig
from raftctl.config.properties import parse_properties, write_properties

__all__ = [
    "KEYS",
    "RACK_AWARE_SELECTOR",
    "Listener",
    "NodeConfig",
    "Server",
    "Voter",
    "load_config",
    "make_config",
    "parse_properties",
    "warn_on_stderr",
    "write_properties",
]
