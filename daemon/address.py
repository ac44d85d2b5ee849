"""The listening socket: bound before anything slow begins, so that a taken address ends the process at once."""

import errno
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .config import Config, ConfigError

BACKLOG = 1024
OWNER_ONLY = 0o600


class AddressError(Exception):
    """The address cannot be bound; the message is one line for the operator."""


@contextmanager
def listening(config: Config) -> Iterator[socket.socket]:
    """The socket that a configuration asks for; a Unix socket's file goes with it. Raises AddressError."""
    if config.unix_socket is None:
        with bind(config.host, config.port) as listener:
            yield listener
        return
    with bind_unix(config.unix_socket) as listener:
        ours = config.unix_socket.stat()
        try:
            yield listener
        finally:
            with suppress(OSError):
                if os.path.samestat(ours, config.unix_socket.stat()):  # else another daemon's stands there by now
                    config.unix_socket.unlink()


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises AddressError."""
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


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket that only its owner may connect to. Raises AddressError.

    What a killed daemon left behind is replaced; a socket on which somebody listens, and any other file, is not.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~OWNER_ONLY)  # from its first moment nobody else may connect
    try:
        _clear(path)
        bound.bind(str(path))
        path.chmod(OWNER_ONLY)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise AddressError(f"cannot listen on {path}: {error.strerror or error}") from None
    except AddressError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _clear(path: Path) -> None:
    """Make way for a socket. Raises AddressError, OSError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(f"cannot listen on {path}: it exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise AddressError(f"cannot listen on {path}: another process listens there")


def read_tls(config: Config) -> ssl.SSLContext | None:
    """How connections are encrypted; None: they are not. Raises ConfigError for files that cannot be used."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for setting, file in (("tls_cert", config.tls_cert), ("tls_key", config.tls_key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{setting} {file} cannot be read: {error.strerror}") from None
    try:
        # An encrypted key would be asked for on the terminal, which a daemon has not got.
        context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"tls_cert {config.tls_cert} and tls_key {config.tls_key} are no certificate and its unencrypted key "
            f"in PEM form: {reason}"
        ) from None
    return context
