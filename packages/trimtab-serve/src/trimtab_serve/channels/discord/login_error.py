from __future__ import annotations


class DiscordLoginRefused(RuntimeError):
    """Discord refuses the login, and will do so until an operator changes the configuration."""
