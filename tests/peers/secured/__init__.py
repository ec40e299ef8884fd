"""Client libraries on one cluster that asks for TLS, for logins and for rights.

`secured_cluster` starts it, and an `Entrance` is one of its listeners.
"""
