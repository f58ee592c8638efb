from __future__ import annotations


class DiscordLoginRefused(RuntimeError):
    """Discord does not let the bot in, and will not until somebody changes something."""
