"""What a started program sees of the environment: what is harmless, and what is named.

Keys and passwords of the environment, kept where the programs of tools do not find them.

A program that a tool starts can ask Linux for the environment that its parent was started with, and
for the parent's memory. `withhold_secrets_from_tools` closes both ways. What the environment said
is then in `ENVIRON`, and no longer in `os.environ`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

INHERITED_VARIABLES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
)
"""Names that are passed on; with them all that begin with `LC_`."""
FIXED_TOOL_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "TERM": "dumb",
}
"""What holds for all: nobody sits at a terminal, and `git status` writes nothing, not even a cache
of its own."""


def build_tool_environment(
    env_setting: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a tool; a name that is not set is left out, as a shell would."""
    out = {
        name: value
        for name, value in environ.items()
        if name in INHERITED_VARIABLES or name.startswith("LC_")
    }
    return out | FIXED_TOOL_VARIABLES | select_variables_named_by_setting(env_setting, environ)


def select_variables_named_by_setting(
    env_setting: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """What the block `env` of a tool names: variables with values, or names to look up."""
    if isinstance(env_setting, Mapping):
        return dict(env_setting)
    return {name: environ[name] for name in env_setting if name in environ}


NON_SECRET_VARIABLES = INHERITED_VARIABLES | {
    # The terminal, and how to write to it.
    *("CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"),
    *("PROMPT_TOOLKIT_BELL", "PROMPT_TOOLKIT_COLOR_DEPTH", "PROMPT_TOOLKIT_NO_CPR", "TERM"),
    *("TERM_PROGRAM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "UNICODE_VERSION"),
    # The desk that somebody sits at.
    *("DISPLAY", "EDITOR", "PAGER", "VISUAL", "WAYLAND_DISPLAY", "XDG_CURRENT_DESKTOP"),
    # Where files are.
    *("NETRC", "PWD", "TEMP", "TMP", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS"),
    *("XDG_CONFIG_HOME", "XDG_DATA_DIRS", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    # What the loader, the C library and Python go by.
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
    # PostgreSQL, all but PGPASSWORD: its library looks these up itself.
    *("KRB5CCNAME", "KRB5_CONFIG", "PGAPPNAME", "PGCHANNELBINDING", "PGCLIENTENCODING"),
    *("PGCONNECT_TIMEOUT", "PGDATABASE", "PGGSSENCMODE", "PGHOST", "PGHOSTADDR", "PGKRBSRVNAME"),
    *("PGOPTIONS", "PGPASSFILE", "PGPORT", "PGREQUIREAUTH", "PGREQUIREPEER", "PGSERVICE"),
    *("PGSERVICEFILE", "PGSSLCERT", "PGSSLCRL", "PGSSLCRLDIR", "PGSSLKEY", "PGSSLMODE"),
    *("PGSSLNEGOTIATION", "PGSSLROOTCERT", "PGSSLSNI", "PGSYSCONFDIR", "PGTARGETSESSIONATTRS"),
    *("PGTZ", "PGUSER", "PSYCOPG_IMPL"),
}
"""Variables that hold no secret and stay; with them all that begin with `LC_`. What is not listed
is withheld, whatever its name."""
PROXY_VARIABLES = frozenset(
    {"ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"}
)
"""May hold a password, and every HTTP client looks them up itself: they stay in `os.environ`."""

_withheld: dict[str, str] = {}


class _EnvironWithWithheld(Mapping[str, str]):
    """The environment with what was withheld. Its repr tells no value, unlike that of a dict."""

    def __getitem__(self, name: str) -> str:
        return os.environ[name] if name in os.environ else _withheld[name]

    def __iter__(self) -> Iterator[str]:
        yield from os.environ
        yield from (name for name in _withheld if name not in os.environ)

    def __len__(self) -> int:
        return sum(1 for _ in self)


ENVIRON: Mapping[str, str] = _EnvironWithWithheld()
"""What the environment says to this process. Before `withhold_secrets_from_tools` it is
`os.environ`."""


def withhold_secrets_from_tools() -> None:
    """Withhold from tools what the environment of this process says.

    Call it first, from the main thread, before anything else reads the environment. All but what
    `NON_SECRET_VARIABLES` and `PROXY_VARIABLES` list leaves `os.environ` for `ENVIRON`. On Linux
    it leaves
    `/proc/PID/environ` as well, and no other program of the same user can read the memory of this
    process any more. Programs that a process of root starts lose the right to. On other systems
    their own rules hold. Calling it again does no harm.
    """
    if sys.platform == "win32":
        return
    import posix

    for name in [name for name in os.environ if not is_non_secret_variable(name)]:
        _withheld[name] = os.environ.pop(name)
        # The copy that `os` was made from when Python started.
        posix.environ.pop(os.fsencode(name), None)
    if sys.platform == "linux":
        from trimtab.agent import process_secrecy_linux

        process_secrecy_linux.overwrite_process_environment(is_non_secret_variable)
        process_secrecy_linux.protect_process_memory()
    os.environ.update({name: _withheld[name] for name in PROXY_VARIABLES & _withheld.keys()})


def is_non_secret_variable(name: str) -> bool:
    """Whether a variable of this name holds no secret."""
    return name in NON_SECRET_VARIABLES or name.startswith("LC_")


def list_withheld_variables() -> list[str]:
    """The names of all that this process was told and tools are not."""
    return sorted(name for name in _withheld if name not in os.environ)


def explain_withheld_variable(error: BaseException) -> str | None:
    """What to do about a function that looked for a variable which is withheld; else None."""
    name = error.args[0] if isinstance(error, KeyError) and error.args else None
    if not isinstance(name, str) or name not in list_withheld_variables():
        return None
    return f"{name} is kept from tools; let the tool see it with `env: [{name}]` in agent.yaml"
