"""Find where an agent's file stores its sessions, regardless of other problems in the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trimtab.stores.factory import check_store_location, is_database_address
from trimtab_serve.agent.config.env_refs import resolve_env_references
from trimtab_serve.agent.config.problems import AgentFileError, ConfigProblem, read_agent_file_text
from trimtab_serve.agent.config.yaml_document import parse_yaml_collecting_problems
from trimtab_serve.agent.environment import ENVIRON

_STORE_PATH = ("session", "store")


def resolve_store_location(
    store: str, folder: Path, password_environ: Mapping[str, str] = ENVIRON
) -> str:
    """Return a database address unchanged, or a folder relative to the file."""
    if is_database_address(store):
        return _with_password(store, password_environ)
    return str(folder / Path(store).expanduser())


def read_store_location(agent_file: Path, environ: Mapping[str, str] = ENVIRON) -> str | None:
    """Return the location of the store that the file names. None if it names none.

    Commands that only read sessions need nothing else from the file. Problems elsewhere in it, such
    as a variable that is not set, are ignored. Raises `AgentFileError` if the store itself is
    invalid.
    """
    document = parse_yaml_collecting_problems(read_agent_file_text(agent_file))
    data = resolve_env_references(document, environ)
    # A document that is no YAML has no marks, and may say anything.
    wrong = [one for one in document.problems if one.path == _STORE_PATH or not document.marks]
    if wrong:
        raise AgentFileError(agent_file, wrong)
    store = _get_key(_get_key(data, "session"), "store")
    if store is None:
        return None
    text = (
        explain_invalid_store(store)
        if isinstance(store, str)
        else "session.store must be a text: a folder, or the address of a database"
    )
    if text is not None:
        raise AgentFileError(
            agent_file,
            [ConfigProblem(text=text, position=document.marks[_STORE_PATH].value_position)],
        )
    return resolve_store_location(store, agent_file.parent, environ)


def explain_invalid_store(store: str) -> str | None:
    """Return what is wrong with the setting; None if nothing is."""
    try:
        check_store_location(store)
    except ValueError as error:
        return f"session.store: {error}"
    return None


def _with_password(database: str, environ: Mapping[str, str]) -> str:
    """Add PGPASSWORD to the address if the database's own library cannot find it."""
    password = environ.get("PGPASSWORD")
    if not password or "PGPASSWORD" in os.environ:
        return database
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ModuleNotFoundError:
        return database  # the error of opening it says what is missing
    try:
        own_password = conninfo_to_dict(database).get("password")
    except ProgrammingError:
        return database  # the error of opening it says what is wrong
    return database if own_password else make_conninfo(database, password=password)


def _get_key(data: Any, name: str) -> Any:
    return cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None
