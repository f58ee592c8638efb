"""What a process keeps from the programs that it starts. Each test has a process of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import Any

import pytest

from trimtab.providers.factory import ENDPOINT_BY_PROVIDER
from trimtab_serve.agent.environment import ENVIRON, is_non_secret_variable

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone shows processes so")
KEY = "sk-ant-0123456789"
TOLD = {
    "PATH": os.environ["PATH"],
    "HOME": "/var/me",
    "TERM": "xterm",
    "LC_ALL": "C.UTF-8",
    "XDG_STATE_HOME": "/var/me/state",
    "SSL_CERT_FILE": "/etc/certificates.pem",
    "PGHOST": "database",
    "ANTHROPIC_API_KEY": KEY,
    "PGPASSWORD": "hush",
    "MY_OWN": "value",
    "HTTPS_PROXY": "http://me:hush@proxy:3128",
}
STAY = {"PATH", "HOME", "TERM", "LC_ALL", "XDG_STATE_HOME", "SSL_CERT_FILE", "PGHOST"}


def ran(code: str, **more: str) -> Any:
    """What a program prints as its last line, read as Python."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**TOLD, **more, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout.splitlines()[-1])


@pytest.mark.process
def test_what_is_not_listed_leaves_the_environment_and_is_still_known_to_the_agent():
    seen = ran(
        "import ctypes, os, posix\n"
        "from trimtab_serve.agent.environment import (\n"
        "    ENVIRON, list_withheld_variables, withhold_secrets_from_tools)\n"
        "withhold_secrets_from_tools(); withhold_secrets_from_tools()\n"
        "c = ctypes.CDLL(None).getenv; c.restype = ctypes.c_char_p\n"
        "print([set(os.environ), {os.fsdecode(n) for n in posix.environ},\n"
        "       {n for n in ENVIRON if c(os.fsencode(n))}, dict(ENVIRON),\n"
        "       list_withheld_variables()])"
    )
    # In Python, in what Python began with, and for the libraries that ask C.
    for names in seen[:3]:
        assert names & TOLD.keys() - {"HTTPS_PROXY"} == STAY
    assert "HTTPS_PROXY" in seen[0] & seen[2]
    assert {name: seen[3][name] for name in TOLD} == TOLD
    assert len(seen[3]) == len(TOLD) + 1
    assert seen[4] == ["ANTHROPIC_API_KEY", "MY_OWN", "PGPASSWORD"]


@linux
@pytest.mark.process
def test_what_the_kernel_shows_is_overwritten_whatever_python_has_made_of_it_since():
    seen = ran(
        "import os\n"
        "from trimtab_serve.agent.environment import is_non_secret_variable\n"
        "from trimtab_serve.agent.process_secrecy_linux import overwrite_process_environment\n"
        "os.environ['ANTHROPIC_API_KEY'] = 'another'\n"
        "del os.environ['PGPASSWORD']\n"
        "overwrite_process_environment(is_non_secret_variable)\n"
        "print([open('/proc/self/environ', 'rb').read(), os.environ['ANTHROPIC_API_KEY']])"
    )
    shown = dict(entry.split("=", 1) for entry in seen[0].decode().split("\0") if entry)
    assert {name for name in shown if name in TOLD} == STAY
    assert {name: shown[name] for name in STAY} == {name: TOLD[name] for name in STAY}
    assert seen[1] == "another"


@linux
@pytest.mark.process
def test_programs_cannot_open_the_memory_and_those_of_root_cannot_get_the_right_to():
    seen = ran(
        "import subprocess\n"
        "from trimtab_serve.agent.process_secrecy_linux import protect_process_memory\n"
        "look = 'exec 2>&1; (: < /proc/$PPID/mem) && echo open; grep Cap /proc/self/status'\n"
        "say = lambda: subprocess.run(['sh', '-c', look], capture_output=True, text=True).stdout\n"
        "protect_process_memory()\n"
        "print([say()])"
    )
    lines = seen[0].splitlines()
    assert "open" not in lines
    rights = {
        n: int(v, 16) for n, _, v in (line.partition(":\t") for line in lines if "Cap" in line)
    }
    assert len(rights) == 5
    for name, held in rights.items():
        if name != "CapBnd" or os.geteuid() == 0:
            assert held & (1 << 17 | 1 << 19) == 0, name


@linux
@pytest.mark.process
def test_programs_inherit_an_empty_keyring_and_not_that_of_the_users_session():
    seen = ran(
        "import ctypes\n"
        "from trimtab_serve.agent import process_secrecy_linux as module\n"
        "keyctl = module._KEYCTL.get(module.platform.machine(), -1)\n"
        "libc = ctypes.CDLL(None)\n"
        "def look():\n"
        "    content = ctypes.create_string_buffer(8)\n"
        "    return [libc.syscall(keyctl, 0, -3, 0), libc.syscall(keyctl, 11, -3, content, 8)]\n"
        "before = look()\n"
        "module.leave_session_keyring()\n"
        "print([before, look()])"
    )
    before, after = seen
    if before[0] < 0:
        pytest.skip("this kernel has no keyrings, or this machine is unknown")
    assert after[0] not in (before[0], -1)
    assert after[1] == 0


@linux
@pytest.mark.process
def test_a_shell_finds_no_key_in_the_environment_of_the_process_that_started_it():
    seen = ran(
        "from trimtab_serve.agent.environment import withhold_secrets_from_tools\n"
        "withhold_secrets_from_tools()\n"
        "import asyncio, os, pathlib\n"
        "from trimtab_serve.agent.tools.process import run_process\n"
        "line = 'xargs -0 < /proc/$PPID/environ'\n"
        "done = asyncio.run(run_process(('bash', '-c', line), cwd=pathlib.Path('.'), timeout=10,\n"
        "    env={'PATH': os.environ['PATH']}, max_output_bytes=100_000))\n"
        "print([done.output])"
    )
    assert "PATH=" in seen[0]
    assert "ANTHROPIC_API_KEY" not in seen[0]


@pytest.mark.parametrize(
    "name",
    [
        *(server.key_variable for server in ENDPOINT_BY_PROVIDER.values() if server.key_variable),
        *(server.url_variable for server in ENDPOINT_BY_PROVIDER.values() if server.url_variable),
        *("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_ADMIN_KEY", "PGPASSWORD"),
        *("DATABASE_URL", "TRIMTAB_STORE", "TRIMTAB_DATABASE", "TELEGRAM_TOKEN", "DISCORD_TOKEN"),
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HTTP_PROXY", "https_proxy", "SSLKEYLOGFILE"),
        *("OTEL_EXPORTER_OTLP_HEADERS", "PYDANTIC_AI_GATEWAY_API_KEY", "PROMETHEUS_PASSWORD"),
        *("PYTHON_TOKEN", "", "path", "A_NAME_THAT_NOBODY_KNOWS"),
    ],
)
def test_what_may_be_a_secret_is_not_among_what_is_harmless(name):
    assert not is_non_secret_variable(name)


def test_before_anything_is_withheld_it_is_the_environment(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    assert dict(ENVIRON) == dict(os.environ)
    assert KEY not in repr(ENVIRON)
    with pytest.raises(KeyError):
        ENVIRON["NOT_THERE"]
