"""Authentication of the connections of a broker's SASL listeners.

An `Authenticator` stands before the dispatch of one listener. It takes the frames of a connection
until that has authenticated, and passes on those that come then. How far a connection has come is
its `ClientConnection.sasl`. `Verifiers` has what clients are verified with: passwords of the
configuration, SCRAM credentials and delegation tokens of the newest metadata image, keys of an
issuer of tokens.

Decides: which requests are served before authentication, when a session expires, and what a client
learns of a failure. The mechanisms are in `raftctl.security.sasl`. The package must not know what a
request does.

Invariants:

- Before authentication only ApiVersions, SaslHandshake and SaslAuthenticate are answered, in this
  order; anything else ends the connection.
- A failure ends the connection: after one answer, which comes later than usual, and with one line
  in the log. Neither has a secret, and the answer does not reveal whether a user exists.
- A session does not outlive its credential or `connections.max.reauth.ms`. Its principal stays. It
  ends when the delegation token that it began with is removed, which Apache Kafka does not do.

Sources: KIP-43, KIP-152 (SaslAuthenticate), KIP-368 (sessions); Apache Kafka's
SaslServerAuthenticator.
"""

from broker.authentication._authenticator import Authenticator
from broker.authentication._verifiers import Verifiers

__all__ = [
    "Authenticator",
    "Verifiers",
]
