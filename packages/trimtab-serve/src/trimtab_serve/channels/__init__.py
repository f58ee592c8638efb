"""Channels: HTTP and chat platforms. They post messages and have no budget logic."""
