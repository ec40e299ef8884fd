"""Mechanisms of SASL, both sides of each as a state machine.

`make_server` and `make_client` return one side of an exchange. It is given the bytes of the other
side and returns its own; `Login` is what a successful exchange ends with, `SaslError` any other.
Beside the front door, `scram` derives keys and salted passwords, `tokens` verifies tokens of
OAUTHBEARER with the keys of their issuer, and `login` is how nodes log in to others.

    PLAIN          RFC 4616; users are options of the JAAS entry
    SCRAM-SHA-256  RFC 5802, RFC 7677; credentials come by a function, so from metadata
    SCRAM-SHA-512  the same; also for delegation tokens (KIP-48)
    OAUTHBEARER    RFC 7628, KIP-255; a token of an authorization server

Decides: who has logged in, and until when. It must not know connections, requests or images, nor
look at a clock or make a nonce: these are arguments.

Invariants: nobody logs in without the password or the token. An unknown user fails at the same
step as a wrong password, after as many hashes, with the same answer; its salt is always the same.
No error, no answer and no repr has a password, a token or a key.
"""

from raftctl.security.sasl._exchange import (
    Credentials,
    make_client,
    make_server,
    plain_passwords,
)
from raftctl.security.sasl._mechanism import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    ClientMechanism,
    Login,
    SaslError,
    ServerMechanism,
    UnknownKeyError,
)

__all__ = [
    "MECHANISMS",
    "OAUTHBEARER",
    "PLAIN",
    "ClientMechanism",
    "Credentials",
    "Login",
    "SaslError",
    "ServerMechanism",
    "UnknownKeyError",
    "make_client",
    "make_server",
    "plain_passwords",
]
