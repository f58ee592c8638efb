"""Logs as plain files: a folder for each session, and one process that writes to it."""

from trimtab.stores.files.store import FileStore

__all__ = ["FileStore"]
