"""Commands for users, access-control lists and quotas.

`users` keeps SCRAM credentials, `acls` the rules of an authorizer (KIP-11, KIP-290), `quotas`
the rates of users, clients and addresses. Brokers of raftctl have no authorizer and refuse
rules with SECURITY_DISABLED. They enforce quotas.
"""
