"""Help and completions are asked for often: they wait for nothing that they do not need."""

import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.running import environ, run, trimtab

pytestmark = pytest.mark.process

HEAVY = {
    *("rich", "matplotlib", "yaml", "prompt_toolkit", "anthropic", "openai", "mcp"),
    *("psycopg", "fastapi", "starlette", "uvicorn", "asyncio"),
    *("trimtab.session", "trimtab.engine.window.window"),
}
# typer checks arguments with pydantic, so it is there as soon as one is read; not before.
LOADED = """
import json, sys
from trimtab.cli import main
try:
    main()
except SystemExit:
    pass
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


def loaded(*arguments, **more):
    done = run(sys.executable, "-c", LOADED, *arguments, **more)
    assert done.out
    return set(json.loads(done.err))


def completing(words, number):
    return {"_TRIMTAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}


def test_the_first_help_does_not_even_load_what_arguments_are_checked_with():
    assert loaded("--help") & {*HEAVY, "pydantic"} == set()


@pytest.mark.parametrize(
    "arguments",
    [
        *([name, "--help"] for name in ("chat", "init", "doctor", "demo", "schema", "session")),
    ],
    ids=" ".join,
)
def test_help_loads_no_package_that_only_a_command_needs(arguments):
    assert loaded(*arguments) & HEAVY == set()


@pytest.mark.parametrize(
    ("words", "number"),
    [("trimtab d", 1), ("trimtab session ", 2), ("trimtab doctor --", 2), ("trimtab chat --", 2)],
)
def test_a_completion_loads_no_package_that_only_a_command_needs(words, number):
    assert loaded(**completing(words, number)) & HEAVY == set()


def test_a_store_is_looked_into_without_what_reads_agents_unless_there_is_one(tmp_path):
    (tmp_path / "sessions").mkdir()
    reads = {"yaml", "trimtab_serve.agent"}
    assert loaded("session", "list", cwd=tmp_path) & reads == set()
    (tmp_path / "agent.yaml").write_text("session: {store: sessions}\n", encoding="utf-8")
    found = loaded("session", "list", cwd=tmp_path)
    assert (found & reads, "trimtab_serve.agent.config.spec" in found) == (reads, False)


@pytest.mark.parametrize(
    ("arguments", "keeps"),
    [
        *((name, True) for name in ("chat", "doctor", "serve", "--unknown serve a.yaml")),
        *((name, False) for name in ("--help", "--version", "init", "replay", "session list", "")),
    ],
)
def test_commands_that_run_tools_keep_the_environment_from_them_before_all_else(arguments, keeps):
    code = (
        "import os, sys, types\n"
        "app = types.SimpleNamespace(app=lambda **_: sys.exit(' '.join(os.environ)))\n"
        "sys.modules['trimtab.cli.app'] = app\n"
        "from trimtab.cli import main; main()"
    )
    words = arguments.split()
    done = run(sys.executable, "-c", code, *words, ANTHROPIC_API_KEY="k", TERM="dumb")
    names = set(done.err.split())
    assert {"PATH", "TERM"} <= names
    assert ("ANTHROPIC_API_KEY" in names) is not keeps


def seconds(*command):
    """CPU of the process, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *command], check=True, capture_output=True, env=environ(), timeout=60
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_at_most_three_times_as_long_as_importing_typer():
    # A busy machine slows a run down, nothing speeds one up.
    least = min(seconds("-c", "import typer") for _ in range(3))
    assert any(seconds("-m", "trimtab.cli", "--help") <= 3 * least for _ in range(5))


def test_help_names_every_command_on_one_line_each():
    done = trimtab("--help", COLUMNS="80")
    listed = done.out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == [
        *("demo", "init", "doctor", "models", "chat", "serve", "keys", "schedule"),
        *("session", "inspect", "user", "tenant", "erasures", "replay", "hook"),
        *("sidecar", "fit", "migrate", "schema"),
    ]
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


def test_a_misspelt_command_is_answered_with_the_likely_one():
    done = trimtab("docter")
    assert (done.code, "Did you mean 'doctor'?" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("typer", "init", "agent"),
        ("typer", "chat", "agent"),
        ("typer", "demo", "cli"),
        ("typer", "session", "cli"),
        ("typer", "serve", "serve"),
        ("pydantic", "doctor", "agent"),
        ("yaml", "doctor", "agent"),
    ],
)
def test_a_missing_package_is_said_with_the_extra_that_brings_it(missing, command, extra, tmp_path):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['trimtab', {command!r}];"
        "from trimtab.cli import main; main()"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    told = f"trimtab: {missing} is not installed; run: pip install 'trimtab[{extra}]'\n"
    assert (done.code, done.err) == (2, told)


@pytest.mark.parametrize("command", ["init", "chat", "doctor"])
def test_with_nothing_installed_the_hint_names_a_provider_at_once(command, tmp_path):
    code = (
        "import sys; sys.modules |= dict.fromkeys(['typer', 'anthropic', 'openai']);"
        f"sys.argv = ['trimtab', '--verbose', {command!r}]; from trimtab.cli import main; main()"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    told = "trimtab: typer is not installed; run: pip install 'trimtab[agent,anthropic]'\n"
    assert (done.code, done.err) == (2, told)


def test_the_server_names_all_that_it_lacks_and_the_extra(tmp_path):
    absent = ["uvicorn", "starlette", "fastapi", "cronsim", "prometheus_client"]
    (tmp_path / "agent.yaml").write_text("name: helper\nmodel: {name: gpt-5}\n", encoding="utf-8")
    code = (
        f"import sys; sys.modules |= dict.fromkeys({absent!r}); sys.argv = ['trimtab', 'serve'];"
        "from trimtab.cli import main; main()"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    named = "fastapi, starlette, uvicorn, cronsim, prometheus_client"
    told = f"trimtab: the server needs {named}; run: pip install 'trimtab[serve]'\n"
    assert (done.code, done.out, done.err) == (2, "", told)


def test_the_server_s_packages_are_those_of_its_extra():
    from trimtab_serve.cli.serve import REQUIRED_PACKAGES

    project = Path(__file__).parents[2] / "packages/trimtab-serve/pyproject.toml"
    extras = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    packages = (line for line in extras["serve"] if not line.startswith("trimtab"))
    declared = {line.partition(">")[0].replace("-", "_") for line in packages}
    # Python reads the system's time zones if tzdata is missing.
    assert declared - {"tzdata"} <= set(REQUIRED_PACKAGES)
