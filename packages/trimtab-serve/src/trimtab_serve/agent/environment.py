"""The environment variables that the programs of tools can see.

A tool's program gets harmless variables and those that its `env` setting names. API keys and
passwords are kept away from it.

A program that a tool starts can ask Linux for the environment that its parent was started with, and
for the parent's memory. `withhold_secrets_from_tools` prevents both. The withheld variables are
then in `ENVIRON` and no longer in `os.environ`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

INHERITED_VARIABLES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
)
"""Variables that are passed on, in addition to all that begin with `LC_`."""
FIXED_TOOL_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "TERM": "dumb",
}
"""Variables that are the same for all tools: there is no terminal, and `git status` writes nothing,
not even its own cache."""


def build_tool_environment(
    env_setting: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Build the environment of a tool. A variable that is not set is omitted, as in a shell."""
    out = {
        name: value
        for name, value in environ.items()
        if name in INHERITED_VARIABLES or name.startswith("LC_")
    }
    return out | FIXED_TOOL_VARIABLES | select_variables_named_by_setting(env_setting, environ)


def select_variables_named_by_setting(
    env_setting: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that a tool's `env` setting names, with given values or looked up."""
    if isinstance(env_setting, Mapping):
        return dict(env_setting)
    return {name: environ[name] for name in env_setting if name in environ}


NON_SECRET_VARIABLES = INHERITED_VARIABLES | {
    # The terminal, and how to write to it.
    *("CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"),
    *("PROMPT_TOOLKIT_BELL", "PROMPT_TOOLKIT_COLOR_DEPTH", "PROMPT_TOOLKIT_NO_CPR", "TERM"),
    *("TERM_PROGRAM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "UNICODE_VERSION"),
    # The desktop.
    *("DISPLAY", "EDITOR", "PAGER", "VISUAL", "WAYLAND_DISPLAY", "XDG_CURRENT_DESKTOP"),
    # Where files are.
    *("NETRC", "PWD", "TEMP", "TMP", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS"),
    *("XDG_CONFIG_HOME", "XDG_DATA_DIRS", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    # Settings of the loader, the C library and Python.
    *("DYLD_FALLBACK_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "GLIBC_TUNABLES", "LD_LIBRARY_PATH"),
    *("LD_PRELOAD", "LOCALE_ARCHIVE", "LOCPATH", "MALLOC_ARENA_MAX", "TZDIR"),
    *("PYTHONASYNCIODEBUG", "PYTHONBREAKPOINT", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE"),
    *("PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONIOENCODING", "PYTHONMALLOC"),
    *("PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH"),
    *("PYTHONTRACEMALLOC", "PYTHONTZPATH", "PYTHONUNBUFFERED", "PYTHONUSERBASE", "PYTHONUTF8"),
    *("PYTHONWARNINGS", "PYTHON_COLORS", "PYTHON_GIL"),
    # The network and its certificates.
    *("CURL_CA_BUNDLE", "FORWARDED_ALLOW_IPS", "NIX_SSL_CERT_FILE", "NO_PROXY", "OPENSSL_CONF"),
    *("REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "no_proxy"),
    # Libraries: how they log and measure, and whose account it is.
    *("ANTHROPIC_LOG", "ANTHROPIC_OPEN_TELEMETRY", "ANTHROPIC_OPEN_TELEMETRY_PROPAGATION"),
    *("ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE", "DEFER_PYDANTIC_BUILD", "OPENAI_LOG"),
    *("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OTEL_PROPAGATORS", "OTEL_PYTHON_CONTEXT"),
    *("OTEL_PYTHON_LOGGER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER", "OTEL_PYTHON_TRACER_PROVIDER"),
    *("PROMETHEUS_DISABLE_CREATED_SERIES", "PROMETHEUS_MULTIPROC_DIR", "PYDANTIC_DISABLE_PLUGINS"),
    # Where the credentials of clouds are: their libraries look these up themselves, and again when
    # credentials expire.
    *("AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_DEFAULT_REGION", "AWS_EC2_METADATA_DISABLED"),
    *("AWS_PROFILE", "AWS_REGION", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "CLOUDSDK_CONFIG"),
    *("GCE_METADATA_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
    # PostgreSQL, except PGPASSWORD: its library looks these up itself.
    *("KRB5CCNAME", "KRB5_CONFIG", "PGAPPNAME", "PGCHANNELBINDING", "PGCLIENTENCODING"),
    *("PGCONNECT_TIMEOUT", "PGDATABASE", "PGGSSENCMODE", "PGHOST", "PGHOSTADDR", "PGKRBSRVNAME"),
    *("PGOPTIONS", "PGPASSFILE", "PGPORT", "PGREQUIREAUTH", "PGREQUIREPEER", "PGSERVICE"),
    *("PGSERVICEFILE", "PGSSLCERT", "PGSSLCRL", "PGSSLCRLDIR", "PGSSLKEY", "PGSSLMODE"),
    *("PGSSLNEGOTIATION", "PGSSLROOTCERT", "PGSSLSNI", "PGSYSCONFDIR", "PGTARGETSESSIONATTRS"),
    *("PGTZ", "PGUSER", "PSYCOPG_IMPL"),
}
"""Variables that hold no secret and stay, in addition to all that begin with `LC_`. Every other
variable is withheld."""
PROXY_VARIABLES = frozenset(
    {"ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"}
)
"""Variables that may hold a password but stay in `os.environ`, because every HTTP client looks them
up itself."""

_withheld: dict[str, str] = {}


class _EnvironWithWithheld(Mapping[str, str]):
    """The environment with the withheld variables. Unlike that of a dict, its repr shows no
    values."""

    def __getitem__(self, name: str) -> str:
        return os.environ[name] if name in os.environ else _withheld[name]

    def __iter__(self) -> Iterator[str]:
        yield from os.environ
        yield from (name for name in _withheld if name not in os.environ)

    def __len__(self) -> int:
        return sum(1 for _ in self)


ENVIRON: Mapping[str, str] = _EnvironWithWithheld()
"""The environment of this process, with the variables that are withheld from tools. Before
`withhold_secrets_from_tools` is called, it equals `os.environ`."""


def withhold_secrets_from_tools() -> None:
    """Hide the secrets in the environment of this process from the programs of tools.

    Call it first, from the main thread, before anything else reads the environment. Variables that
    are not in `NON_SECRET_VARIABLES` or `PROXY_VARIABLES` move from `os.environ` to `ENVIRON`.

    On Linux they also disappear from `/proc/PID/environ`, and other programs of the same user can
    no longer read the memory of this process. Programs that a root process starts lose the right to
    do so. On other systems, the rules of the system apply. Calling it again is harmless.
    """
    if sys.platform == "win32":
        return
    import posix

    for name in [name for name in os.environ if not is_non_secret_variable(name)]:
        _withheld[name] = os.environ.pop(name)
        # The copy that `os` was made from when Python started.
        posix.environ.pop(os.fsencode(name), None)
    if sys.platform == "linux":
        from trimtab_serve.agent import process_secrecy_linux

        process_secrecy_linux.overwrite_process_environment(is_non_secret_variable)
        process_secrecy_linux.protect_process_memory()
        process_secrecy_linux.leave_session_keyring()
    os.environ.update({name: _withheld[name] for name in PROXY_VARIABLES & _withheld.keys()})


def is_non_secret_variable(name: str) -> bool:
    """Return whether a variable of this name holds no secret."""
    return name in NON_SECRET_VARIABLES or name.startswith("LC_")


def list_withheld_variables() -> list[str]:
    """Return the names of the variables that are withheld from tools."""
    return sorted(name for name in _withheld if name not in os.environ)


def explain_withheld_variable(error: BaseException) -> str | None:
    """Return advice if a function failed because a variable is withheld; otherwise None."""
    name = error.args[0] if isinstance(error, KeyError) and error.args else None
    if not isinstance(name, str) or name not in list_withheld_variables():
        return None
    return f"{name} is withheld from tools; to pass it on, write `env: [{name}]` in agent.yaml"
