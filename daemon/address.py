"""The listening socket: bound before anything slow begins, so that a taken port ends the process at once."""

import errno
import socket

BACKLOG = 1024


class AddressError(Exception):
    """The address cannot be bound; the message is one line for the operator."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. Raises AddressError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # "localhost" is both; clients that know but one of the two know IPv4.
        family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressError(f"host {host!r} is no address of this machine: {error.strerror or error}") from None
    try:
        # A restart must not wait for the old connections' TIME_WAIT; a second daemon is still refused.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        remedy = " (another process listens there; choose another --port)" if error.errno == errno.EADDRINUSE else ""
        raise AddressError(f"cannot listen on {host}:{port}: {error.strerror}{remedy}") from None
    return bound
