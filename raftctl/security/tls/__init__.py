"""TLS: contexts from stores, connections on the event loop, principals from certificates.

A node has one `NodeTls`, which makes the two ends, `TlsListener` and `TlsClient`. They load the
stores that the `ssl.` keys name: PEM, as files or as text (KIP-651), PKCS12 or JKS. Each connection
gets the newest context: stores are loaded again when their files change. A
`TlsConnection` stands between the event loop's transport and another protocol, which does not
notice. The work of handshakes is done on threads, and their number and time are bounded.
`ClientStores` has the stores of a client for the libraries that commands use.

Decides: which certificates, versions and cipher suites are taken; the name of the principal that a
certificate stands for, by `ssl.principal.mapping.rules` over the subject as Java prints it.

Must not know: requests, SASL, and what a principal may do.

Invariants:

- Settings that cannot be in force are a ConfigError with the key, the file and the remedy (row S8).
- No password and no key is in an error, a repr or a log. A private key is on no disk but in its
  own store: OpenSSL, which reads files alone, gets it by one in memory.
- A client that must show a certificate is verified against the trust store and nothing else.
- A connection whose handshake fails ends with one line in the log that says why. A peer that is
  slow in its handshake holds no thread. Where a listener has limits of its own, no handshake
  begins before its connection is let in.
- Stores that cannot be used after a change leave the context before it in force.

Sources: Apache Kafka's DefaultSslEngineFactory and SslPrincipalMapper; KIP-371, KIP-651, RFC 2253,
RFC 8446. Rows S2 and S8 of the requirements.
"""

from raftctl.security.tls._client_stores import ClientStores, PemFiles
from raftctl.security.tls._connection import TlsConnection
from raftctl.security.tls._endpoints import TlsClient, TlsListener
from raftctl.security.tls._node import NodeTls

__all__ = ["ClientStores", "NodeTls", "PemFiles", "TlsClient", "TlsConnection", "TlsListener"]
