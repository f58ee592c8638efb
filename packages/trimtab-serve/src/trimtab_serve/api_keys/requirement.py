"""Whether callers of a server need an API key."""

from __future__ import annotations

from ipaddress import ip_address

from trimtab_serve.agent.config.spec import ServeSpec


def requires_api_keys(serve: ServeSpec) -> bool:
    """Whether callers need a key, because the file says so or other machines can reach the
    server."""
    return serve.keys or not is_loopback_host(serve.host)


def is_loopback_host(host: str) -> bool:
    """Whether a host name means only this machine."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
