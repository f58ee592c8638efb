"""Logs as plain files: a directory for each session, one process that writes."""

from trimtab.stores.files.store import FileStore

__all__ = ["FileStore"]
