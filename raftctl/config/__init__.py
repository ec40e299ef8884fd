"""Configuration of a node: Kafka's keys, each defined once.

`load_config(text, overrides)` parses a properties file and returns a frozen `NodeConfig`;
`make_config` does the same from a mapping. `parse_client_properties` parses what a client logs in
with. A key has one definition in `keys`: its type,
default, bounds and description. `docs/reference/configuration.md` is generated from it.
`addresses` parses listeners, voters and bootstrap servers; `security` has what a listener asks for
of TLS, SASL and limits, `NodeConfig.listener_security(name)`. The three modules are public: their
names are the vocabulary of keys that are more than a number or a text.

Decides: which keys exist, which values are valid, what a default is, which keys of Kafka have
no effect here and must be refused or warned about.

Must not know: files and environments (the caller reads them), the dynamic configs of the
metadata log, and the meaning of a key to the component that uses it.

Invariants: a `NodeConfig` is complete and valid, so no other module checks a key again. A
ConfigError names the key and the remedy, never a secret. What is asked for of security and is not
in force is an error, not a warning. Times are in the unit that the key's name says.

Source: Kafka 4's configuration reference.
"""

from raftctl.config._client import parse_client_properties
from raftctl.config._definition import Section, key_of
from raftctl.config._load import KEYS, load_config, make_config, warn_on_stderr
from raftctl.config._model import SECTIONS, NodeConfig
from raftctl.config._properties import parse_properties, write_properties
from raftctl.config._unused import explained_keys, refused_keys

__all__ = [
    "KEYS",
    "SECTIONS",
    "NodeConfig",
    "Section",
    "explained_keys",
    "key_of",
    "load_config",
    "make_config",
    "parse_client_properties",
    "parse_properties",
    "refused_keys",
    "warn_on_stderr",
    "write_properties",
]
