from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The library's part for voice loads a module that Python is to drop.
    warnings.filterwarnings("ignore", "'audioop'", DeprecationWarning)
    import discord as discord
