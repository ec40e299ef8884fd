"""Commands for users, delegation tokens, access-control lists and quotas.

`users` keeps SCRAM credentials, `tokens` delegation tokens (KIP-48), `acls` the rules of an
authorizer (KIP-11, KIP-290), `quotas` the rates of users, clients and addresses. Brokers without an
authorizer refuse rules with SECURITY_DISABLED, and those without a secret refuse tokens.
"""
