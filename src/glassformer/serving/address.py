"""Where the server listens, and by which names a browser or client may call it.

A page of another site cannot read our answers, but its name can be made to lead here (DNS rebinding). So the
`Host` of a request must be a name of ours. An address in digits cannot be rebound; where we listen on all
addresses, any of them is ours.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from glassformer.core.errors import GlassformerError, UsageError

LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, token: str | None) -> None:
    """Whoever is not on this machine needs a token."""
    if not host:
        raise UsageError("--host: expected an address, such as 127.0.0.1, or 0.0.0.0 for all of them")
    if not is_loopback(host) and not token:
        raise UsageError(
            f"--host {host} lets other machines in, so there has to be a token: put one into the environment "
            "variable GLASSFORMER_TOKEN (or give --token), and clients send it as `Authorization: Bearer …`"
        )
    if token is not None and (
        len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise UsageError(
            "the token: expected at least 8 letters, digits and signs without blanks, for example "
            'from: python -c "import secrets; print(secrets.token_urlsafe())"'
        )


def listen(host: str, port: int, backlog: int = 512) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(backlog)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GlassformerError(
            f"cannot listen at {host}, port {port}: {reason}. Choose another with --host or --port; --port 0 "
            "takes any that is free."
        ) from None
    return opened


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True)
class Names:
    """By what a request may call the server."""

    names: frozenset[str]
    any_address: bool = False  # any address in digits

    @classmethod
    def of(cls, host: str, allowed: Iterable[str] = ()) -> "Names":
        """`host` is what the server listens at; `allowed` are further names of it."""
        names = {*LOOPBACK, host.lower(), *(name.lower().strip("[]") for name in allowed)}
        everywhere = host in ("0.0.0.0", "::")
        if not is_loopback(host):
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(frozenset(names), everywhere)

    def include(self, host: str) -> bool:
        """Whether the value of a `Host` header is one of ours; its port may be any."""
        name = host_name(host)
        if name is None:
            return False
        if name in self.names:
            return True
        return self.any_address and _is_address(name)


def host_name(host: str) -> str | None:
    """The name in `name`, `name:port`, `[address]:port`; None: it is nothing of the kind."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:] if port else ""
    else:
        name, _, port = host.partition(":")
    if not name or (port and not port.isdecimal()):
        return None
    return name.lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
