"""Hostile frames to listeners that authenticate: before a login, and in the middle of one.

    broker      a broker with three listeners, its time, its chance and its secrets
    links       connections to it without sockets, with and without TLS
    scripts     what a peer sends on one connection, by chance
    answers     what a peer without a login may be answered
    judge       what must hold after each frame and each connection
    run         so many frames, then a summary; a slice of them goes through sockets

Each connection follows from the seed and its number alone, so that one can be repeated.
"""
