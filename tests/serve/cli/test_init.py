"""A new agent works as it is written, and nobody's file is lost."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.providers.factory import ENDPOINT_BY_PROVIDER
from trimtab_serve.agent.config.loader import list_config_warnings, load_agent_spec
from trimtab_serve.agent.tools.permissions.rules import build_permission_rules, decide_permission
from trimtab_serve.cli.doctor.tool_checks import (
    explain_misleading_allow_pattern,
    list_shell_tool_warnings,
)
from trimtab_serve.cli.init import model_choice as choosing
from trimtab_serve.cli.init.files import build_agent_files, derive_agent_name, write_agent_files
from trimtab_serve.cli.init.model_choice import (
    DEFAULT_MODEL_BY_PROVIDER,
    ModelNotNamedError,
    choose_model,
)

FILES = {"agent.yaml", "system.md", "tools.py", ".gitignore", ".agent.schema.json"}
KEYS = [server.key_variable for server in ENDPOINT_BY_PROVIDER.values() if server.key_variable]


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch, tmp_path):
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(choosing, "find_first_ollama_model", lambda: None)
    monkeypatch.chdir(tmp_path)


def init(*arguments, **environ):
    return CliRunner().invoke(app, ["init", *arguments], env=environ)


def test_it_writes_an_agent_that_is_read_without_a_change(tmp_path):
    done = init("ship")
    assert done.exit_code == 0, done.output
    assert {path.name for path in Path("ship").iterdir()} == FILES
    spec = load_agent_spec(tmp_path / "ship" / "agent.yaml", {})
    assert (spec.name, spec.model.name) == ("ship", DEFAULT_MODEL_BY_PROVIDER["anthropic"])
    assert set(spec.tools) == {"days_between"}
    assert list_config_warnings(tmp_path / "ship" / "agent.yaml") == []


def test_it_gives_no_shell_unless_it_is_asked_for_one(tmp_path):
    assert "tools days_between  (no shell: to add one, remove the #" in init(".").stdout
    done = init(".", "--shell", "--force")
    assert "tools days_between, shell  (it asks you before it runs a command" in done.stdout
    shell = load_agent_spec(tmp_path / "agent.yaml", {}).tools["shell"]
    assert shell.permission is None  # so it asks
    assert {"cat *", "git diff *"} <= set(shell.allow)


def test_every_pattern_that_it_writes_is_one_that_the_doctor_would_write(tmp_path):
    init(".", "--shell")
    spec = load_agent_spec(tmp_path / "agent.yaml", {})
    assert [
        each for each in spec.tools["shell"].allow if explain_misleading_allow_pattern(each)
    ] == []
    assert list_shell_tool_warnings(spec, tmp_path) == {"shell": []}


@pytest.mark.parametrize(
    "line",
    [
        'git difftool -y -x "touch PWNED; echo" --no-index /etc/hostname /etc/passwd',
        "git diff --no-index --output=PWNED /dev/null /etc/hostname",
        "git diff --ext-diff",
        "git -c diff.external=./x diff",
        "cat x > PWNED",
    ],
)
def test_the_patterns_that_it_writes_let_nothing_be_run_or_written_unasked(tmp_path, line):
    init(".", "--shell")
    shell = load_agent_spec(tmp_path / "agent.yaml", {}).tools["shell"]
    rules = build_permission_rules(shell)
    assert decide_permission(rules, "git diff --stat").permission == "allow"
    assert decide_permission(rules, line).permission == "ask"


def test_a_shell_that_does_not_reach_the_file_is_said():
    init(".")
    said = "agent.yaml already exists, so --shell did not change it; add a shell, or use --force"
    assert said in init(".", "--shell").stdout


def test_a_shell_that_the_file_already_has_is_not_asked_for_again():
    init(".", "--shell")
    again = init(".", "--shell")
    assert "kept  agent.yaml" in again.stdout
    assert "were not changed" not in again.stdout


@pytest.mark.parametrize(
    "text", ["tools: [", "tools: [shell]", "", "tools: {shell: {kind: python}}"]
)
def test_a_file_without_a_shell_that_can_be_read_is_said_not_to_have_one(tmp_path, text):
    (tmp_path / "agent.yaml").write_text(text, encoding="utf-8")
    assert "add a shell, or use --force" in init(".", "--shell").stdout


@pytest.mark.parametrize(
    "provider", [*DEFAULT_MODEL_BY_PROVIDER, "ollama", "openrouter", "vllm", "llama.cpp"]
)
def test_for_every_provider_the_file_can_be_read(provider, tmp_path):
    named = [] if provider in DEFAULT_MODEL_BY_PROVIDER else ["--model", "qwen3:8b"]
    done = init(".", "--provider", provider, *named)
    assert done.exit_code == 0, done.output
    assert load_agent_spec(tmp_path / "agent.yaml", {}).model.name == DEFAULT_MODEL_BY_PROVIDER.get(
        provider, "qwen3:8b"
    )


def test_the_file_points_to_nothing_that_an_installed_package_has_not():
    written = build_agent_files("ship", choose_model({}, model=None, provider=None))
    assert "docs/" not in written["agent.yaml"]
    assert "`trimtab schema`" in written["agent.yaml"]
    assert ".agent.schema.json" in written


def test_the_file_says_what_becomes_of_asking_when_it_is_served():
    for shell in (False, True):
        written = build_agent_files(
            "ship", choose_model({}, model=None, provider=None), with_shell=shell
        )["agent.yaml"]
        assert "`trimtab serve` cannot ask you, so it runs only what `allow` covers" in written


@pytest.mark.parametrize("options", [[], ["--shell"]])
def test_the_file_is_short_enough_to_be_read(options):
    init(".", *options)
    assert len(Path("agent.yaml").read_text(encoding="utf-8").splitlines()) <= 40


def test_what_is_commented_out_may_be_taken_in(tmp_path):
    init(".")
    kept = [
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") and i > 3 else line
        for i, line in enumerate(Path("agent.yaml").read_text(encoding="utf-8").splitlines())
    ]
    Path("agent.yaml").write_text("\n".join(kept), encoding="utf-8")
    spec = load_agent_spec(tmp_path / "agent.yaml", {"ANTHROPIC_API_KEY": "k"})
    assert spec.session.context.max_tool_result_tokens == 8000
    assert {"files", "shell"} <= set(spec.tools)


def test_the_schema_that_editors_use_is_the_one_of_this_release():
    init(".")
    first = Path("agent.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=.agent.schema.json"
    printed = CliRunner().invoke(app, ["schema"]).stdout
    assert json.loads(printed)["$defs"]
    assert Path(".agent.schema.json").read_text(encoding="utf-8") == printed


@pytest.mark.parametrize("name", sorted(FILES - {".agent.schema.json"}))
def test_a_file_that_is_there_stays_as_it_is(name):
    Path(name).write_text("mine", encoding="utf-8")
    done = init(".")
    assert done.exit_code == 0
    assert Path(name).read_text(encoding="utf-8") == "mine"
    assert f"kept  {name}  (it already exists; --force overwrites it)" in done.stdout


def test_with_force_it_is_written_over():
    Path("agent.yaml").write_text("mine", encoding="utf-8")
    done = init(".", "--force")
    assert "kept" not in done.stdout
    assert Path("agent.yaml").read_text(encoding="utf-8") != "mine"


def test_a_model_that_does_not_reach_the_file_is_said():
    init(".")
    done = init(".", "--model", "gpt-4o")
    assert "the model in agent.yaml was not changed; edit it, or use --force" in done.stdout


def test_it_says_the_next_commands_and_the_key_that_is_missing():
    done = init("ship")
    assert done.stdout.partition("Next:\n")[2].splitlines() == [
        "  cd ship",
        "  export ANTHROPIC_API_KEY=…   # your key",
        "  trimtab chat        # or `trimtab doctor`, which checks everything",
    ]


def test_with_a_key_nothing_is_left_but_to_chat():
    done = init(".", OPENAI_API_KEY="hush")
    assert f"model {DEFAULT_MODEL_BY_PROVIDER['openai']}  (OPENAI_API_KEY is set)" in done.stdout
    assert done.stdout.partition("Next:\n")[2].splitlines() == [
        "  trimtab chat        # or `trimtab doctor`, which checks everything",
    ]
    assert all("hush" not in path.read_text(encoding="utf-8") for path in Path().iterdir())


def test_a_folder_that_cannot_be_made_is_said_in_one_line():
    Path("taken").write_text("a file", encoding="utf-8")
    done = init("taken")
    assert (done.exit_code, done.stderr) == (
        2,
        "trimtab: taken is a file; name a folder, or move the file\n",
    )


def test_a_misspelt_provider_is_answered_with_the_likely_one():
    done = init(".", "--provider", "anthropc")
    assert done.exit_code == 2
    assert "did you mean anthropic?" in done.stderr
    assert not any(Path().iterdir())


def test_the_order_of_keys_decides_and_then_a_model_on_this_machine():
    both = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    assert choose_model(both).model == DEFAULT_MODEL_BY_PROVIDER["anthropic"]
    assert choose_model({"OPENAI_API_KEY": "k"}).model == DEFAULT_MODEL_BY_PROVIDER["openai"]
    local = choose_model({}, find_local_model=lambda: "qwen3:8b")
    assert (local.model, local.provider, local.key_variable) == ("qwen3:8b", "ollama", None)


def test_a_provider_without_a_usual_model_asks_for_one():
    with pytest.raises(
        ModelNotNamedError, match="no default model for openrouter; name one: --model NAME"
    ):
        choose_model({}, provider="openrouter")


@pytest.mark.parametrize("model", DEFAULT_MODEL_BY_PROVIDER.values())
def test_the_models_that_it_chooses_are_in_the_catalog(model):
    from trimtab.models.catalog import find_model_info

    assert find_model_info(model) is not None


def test_a_window_is_written_for_a_server_that_cuts_in_silence(tmp_path):
    write_agent_files(
        tmp_path,
        build_agent_files("a", choose_model({}, provider="ollama", model="qwen3:8b")),
        force=False,
    )
    assert load_agent_spec(tmp_path / "agent.yaml", {}).model.context_window == 4096


@pytest.mark.parametrize(
    ("folder", "name"), [("My Ship", "my-ship"), ("7", "agent"), ("Ärger", "ärger"), ("x_y", "x_y")]
)
def test_an_agent_is_called_like_its_folder_as_far_as_that_is_a_name(folder, name):
    assert derive_agent_name(Path(folder)) == name
