import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.replay.conversations import record, wires
from trimtab import Context
from trimtab.cli.app import app
from trimtab.cli.replay_study import list_setups
from trimtab.cli.token_count import parse_token_count


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "logs.jsonl"
    lines = [record(f"c{i}", 3 + 6 * i, first=50 * i) for i in range(4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def paid_logs(tmp_path_factory):
    """Logs of Claude Code with usage: three sessions, each with one pause that outlived a cache."""
    folder = tmp_path_factory.mktemp("paid")
    for number in range(3):
        lines, before, now = [], 0, 0
        for index, wire in enumerate(wires(40, words=2_500, first=100 * number)[1:]):
            now += 5 if index != 41 else 4_000
            stamp = f"2026-01-01T{now // 3600:02}:{now // 60 % 60:02}:{now % 60:02}Z"
            message = {"role": "user", "content": wire.get("content")}
            if wire["role"] == "assistant":
                total = 30_000 + 1_500 * index
                usage = {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 0 if index == 41 else before,
                    "cache_creation_input_tokens": total if index == 41 else total - before,
                    "output_tokens": 50,
                }
                before = total
                called = wire.get("tool_calls") or ()
                content = [
                    {
                        "type": "tool_use",
                        "id": call["id"],
                        "name": "read",
                        "input": json.loads(call["function"]["arguments"]),
                    }
                    for call in called
                ] or [{"type": "text", "text": wire["content"]}]
                message = {"role": "assistant", "content": content, "usage": usage}
                message |= {"id": f"msg_{number}_{index}", "model": "claude-opus-4-5"}
            elif wire["role"] == "tool":
                result = {"type": "tool_result", "tool_use_id": wire["tool_call_id"]}
                message["content"] = [{**result, "content": wire["content"]}]
            line = {"type": message["role"], "message": message, "timestamp": stamp}
            lines.append({**line, "uuid": f"{number}-{index}"})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"secret-name-{number}.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def screen(paid_logs):
    """What is printed without any option."""
    return replay(paid_logs)


@pytest.fixture(scope="module")
def figures(paid_logs):
    return as_json(paid_logs)


def replay(*arguments):
    return CliRunner().invoke(app, ["replay", "--jobs", "1", *map(str, arguments)])


def as_json(*arguments):
    done = replay(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_says_first_what_it_reads_and_then_what_was_paid(screen, paid_logs):
    assert screen.exit_code == 0, screen.output
    assert screen.stderr.startswith("Reading 3 files (")
    assert str(paid_logs) in screen.stderr
    assert screen.stdout.startswith("You paid $")
    assert "123 calls in 3 sessions" in screen.stdout
    assert "On a flat plan this is usage, not money." in screen.stdout


def test_breaks_are_told_by_cause(screen):
    (line,) = [line for line in screen.stdout.splitlines() if "a pause longer than" in line]
    assert line.split()[-2] == "3"


def test_what_to_know_about_the_most_expensive_cause_follows(screen):
    assert "To lose less, finish a task before a pause" in " ".join(screen.stdout.split())


def test_logs_without_tool_definitions_say_so_and_how_large_the_head_is(screen):
    text = " ".join(screen.stdout.split())
    assert "System prompt and tools: about 3" in text
    assert "these logs do not name tools that were never called" in text


def test_tools_to_remove_are_named_and_cannot_move_the_cursor(tmp_path):
    names = ["read", "unused", "ev\x1b[2Jil", *(f"extra_{n:02}" for n in range(12))]
    tools = [
        {"type": "function", "function": {"name": name, "description": "word " * 200}}
        for name in names
    ]
    path = tmp_path / "tools.jsonl"
    path.write_text(json.dumps({**record("c", 4), "tools": tools}) + "\n", encoding="utf-8")
    text = replay(path).stdout
    assert "Tools to remove: 14 of 15 were never called. They took" in text
    assert "  and 4 more; --json lists all" in text
    assert "\x1b" not in text
    removable = as_json(path)["tools"]["to_remove"]
    assert set(removable) == set(names) - {"read"}
    assert "extra_01" not in replay(path, "--share").stdout


def test_each_policy_has_a_row_below_everything_and_the_error_of_the_model(screen):
    rows = [line.split()[0] for line in screen.stdout.splitlines() if line.startswith("  ")]
    start = rows.index("everything,")
    assert rows[start:] == ["everything,", "auto", "auto:cost"]
    assert "How far to trust it" in screen.stdout


def test_the_last_line_is_a_sentence_with_the_saving(screen, figures):
    sentence = screen.stdout.splitlines()[-1]
    assert sentence == figures["sentence"]
    best = max(one["saved"] for one in figures["replayed"]["policies"])
    assert f"{100 * best:.0f} %" in sentence


def test_json_has_the_figures_of_the_screen_under_plain_names(figures):
    assert set(figures) == {
        *("paid", "cache_breaks", "large_results", "head_tokens", "tools"),
        *("replayed", "skipped", "sentence"),
    }
    assert figures["paid"]["by_kind"]["Claude Code"]["calls"] == 123
    assert figures["cache_breaks"]["pause"]["calls"] == 3
    replayed = figures["replayed"]
    assert replayed["models"] == {"claude-opus-4-5": 200_000}
    assert abs(replayed["modelled"] / replayed["paid"] - 1) < 0.1


def test_what_is_shared_has_no_path_name_or_text(paid_logs):
    done = replay(paid_logs, "--share")
    assert done.exit_code == 0, done.output
    for word in ("secret-name", "symbol_", "main_module", str(paid_logs)):
        assert word not in done.stdout
    assert "Trimtab" in done.stdout.splitlines()[0]
    assert "auto:cost" in done.stdout


def test_no_text_of_a_log_is_on_the_screen(screen):
    for word in ("secret-name", "symbol_", "main_module"):
        assert word not in screen.stdout + screen.stderr


def test_where_nothing_is_saved_it_says_not_to_install(logs):
    done = replay(logs)
    assert done.stdout.splitlines()[-1] == (
        "Trimtab would have saved nothing. Not worth installing."
    )


def test_without_a_path_it_reads_where_clients_keep_their_logs(paid_logs, tmp_path):
    folder = tmp_path / ".claude" / "projects" / "one"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(paid_logs, target_is_directory=True)
    copied = tmp_path / ".codex" / "sessions"
    copied.mkdir(parents=True)
    (copied / "a.jsonl").write_bytes((paid_logs / "secret-name-0.jsonl").read_bytes())
    variables = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR")
    home = {"HOME": str(tmp_path), **dict.fromkeys(variables, "")}
    done = CliRunner().invoke(app, ["replay", "--jobs", "1", "--limit", "1"], env=home)
    assert done.exit_code == 0, done.output
    assert f"{tmp_path}/.claude/projects and {tmp_path}/.codex/sessions" in done.stderr
    empty = {**home, "HOME": str(tmp_path / "nobody")}
    done = CliRunner().invoke(app, ["replay"], env=empty)
    assert done.exit_code == 2
    assert "no logs found in" in done.stderr


def test_lines_that_cannot_be_read_are_counted(paid_logs, tmp_path):
    text = (paid_logs / "secret-name-0.jsonl").read_text(encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(text + "the secret word\n{}[\n", encoding="utf-8")
    done = replay(tmp_path, "--limit", "1")
    assert "Skipped 2 entries of 1 file that could not be read" in done.stderr
    assert "secret word" not in done.output
    assert as_json(tmp_path, "--limit", "1")["skipped"] == 2


def own_log(path, *, model, rounds, **options):
    """A log of a session of ours."""
    context = Context(model=model, dialect="openai_chat", **options)
    for wire in wires(rounds)[1:]:
        if wire["role"] == "assistant":
            context.request()
        context.add(wire)
    path.write_text("\n".join(context.dump()), encoding="utf-8")
    return path


def test_model_and_window_are_those_of_our_own_logs(tmp_path):
    paths = [
        own_log(tmp_path / f"{n}.jsonl", model="gpt-4.1", rounds=n + 2, context_window=24_000)
        for n in range(2)
    ]

    def models(*options):
        return as_json(*paths, *options)["replayed"]["models"]

    assert models() == {"gpt-4.1": 24_000}
    assert models("--model", "gpt-5") == {"gpt-5": 400_000}
    assert models("--window", "64k") == {"gpt-4.1": 64_000}


def test_each_session_is_replayed_with_its_own_model(tmp_path, logs):
    paths = [
        own_log(tmp_path / f"{model}.jsonl", model=model, rounds=rounds)
        for model, rounds in (("gpt-4.1", 2), ("gpt-5", 4))
    ]
    replayed = as_json(*paths)["replayed"]
    assert (list(replayed["models"]), replayed["calls"]) == (["gpt-5", "gpt-4.1"], 8)
    assert "assuming model claude-sonnet-4-5 for logs that name none" in replay(logs).stderr


def test_a_model_that_the_catalog_does_not_have_is_named_with_similar_ones(logs):
    done = replay(logs, "--model", "claude-opus4-8")
    assert "claude-opus4-8 is not in the catalog: did you mean claude-opus-4-8" in done.stderr
    assert "200,000 tokens" in done.stderr


def test_a_path_that_does_not_exist_is_named(tmp_path):
    done = replay(tmp_path / "none")
    assert done.exit_code == 2
    assert "none does not exist; name a file or a folder" in done.stderr


@pytest.mark.parametrize(("many", "rounds", "few"), [(2, 60, True), (3, 20, True), (3, 40, False)])
def test_too_few_conversations_or_calls_are_no_ground_to_judge_by(many, rounds, few, tmp_path):
    path = tmp_path / "some.jsonl"
    lines = [record(f"c{n}", rounds, first=50 * n) for n in range(many)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = replay(path)
    assert ("To judge, replay at least" in " ".join(done.stdout.split())) is few


def test_a_table_fits_a_terminal_of_a_hundred_columns(screen):
    tables = [line for line in screen.stdout.splitlines() if line.startswith("  ")]
    assert max(len(line) for line in tables) <= 100


def test_conversations_are_chosen(logs):
    def count(*options):
        return as_json(logs, *options)["replayed"]["sessions"]

    assert count() == 4
    assert count("--min-calls", "10") == 3
    assert count("--limit", "1") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--window", "big"], "invalid number of tokens 'big'"),
    ],
)
def test_a_wrong_option_says_what_is_right(logs, arguments, said):
    done = replay(logs, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    done = replay(path)
    assert done.exit_code == 1
    assert "x.jsonl, line 1: expected JSON" in done.stderr.replace("\n", "")
    assert "hello" not in done.output


def test_nothing_left_to_replay_is_said(logs):
    done = replay(logs, "--min-calls", "99")
    assert done.exit_code == 1
    assert "4 sessions found, but none is left" in done.stderr


def test_a_place_without_conversations_says_what_is_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("Buy milk.\n", encoding="utf-8")
    done = replay(tmp_path, "--min-calls", "30")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"no conversations found in {tmp_path}; supported formats: a trimtab log" in done.stderr
    assert "in files whose names end in .json, .jsonl\n" in done.stderr


def test_one_session_with_one_call_is_said_in_the_singular(tmp_path):
    path = tmp_path / "own.jsonl"
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    path.write_text("".join(json.dumps(one) + "\n" for one in said), encoding="utf-8")
    told = " ".join(replay(path).stdout.split())
    assert "What you paid is not in these logs: 1 call without usage." in told
    assert "all 1 call of 1 session." in told


def test_what_session_export_writes_is_replayed(tmp_path):
    log = own_log(tmp_path / "log.jsonl", model="gpt-4.1", rounds=3)
    events = log.read_text(encoding="utf-8").splitlines()
    store = tmp_path / "sessions" / "first"
    store.mkdir(parents=True)
    (store / "events.jsonl").write_text("\n".join(events) + "\n", encoding="utf-8")
    kept = tmp_path / "first.jsonl"
    done = CliRunner().invoke(
        app, ["session", "export", "first", "-o", str(kept), "--store", str(store.parent)]
    )
    assert done.exit_code == 0, done.output
    assert as_json(kept)["replayed"]["calls"] == 4


@pytest.mark.parametrize(
    ("text", "tokens"), [("200k", 200_000), ("1M", 1_000_000), ("1.5k", 1_500), ("64_000", 64_000)]
)
def test_windows_are_typed_as_people_do(text, tokens):
    assert parse_token_count(text) == tokens


def test_everything_comes_first_and_then_each_goal_of_the_default_policy():
    everything, *goals = list_setups("m", 9)
    assert everything.sends_everything
    options = {"policy": "auto", "context_window": 9, "dialect": "openai_chat"}
    assert [setup.options for setup in goals] == [
        {**options, "goal": "balanced"},
        {**options, "goal": "cost"},
    ]


@pytest.mark.process
def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None\nfrom trimtab.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'trimtab[cli]'" in done.stderr
