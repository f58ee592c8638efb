import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.replay.conversations import record, wires
from trimtab import Context
from trimtab.cli.app import app
from trimtab.cli.replay_screen import Screen, list_screen_lines
from trimtab.replay.advice import TRIMTAB, choose_settings, list_settings
from trimtab.replay.client_study import ClientStudy
from trimtab.replay.payments import Payments
from trimtab.replay.savings import Saving


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
                        "name": "Bash",
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
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def as_json(*arguments):
    done = replay(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_says_first_what_it_reads_and_then_what_was_paid(screen, paid_logs):
    assert screen.exit_code == 0, screen.output
    assert screen.stderr.startswith("Reading 3 files (")
    assert str(paid_logs) in screen.stderr
    first, second = screen.stdout.splitlines()[:2]
    assert first.startswith("You paid $")
    assert "to read old context again: 123 calls in 3 sessions." in first
    assert second == "On a flat plan this is usage, not money."


def test_what_the_cache_lost_is_part_of_what_was_read_again(screen, figures):
    assert "because a pause was longer than the cache lives." in screen.stdout
    dollars = figures["paid"]["dollars"]
    assert dollars["lost"] == pytest.approx(figures["lost"]["pause"])
    assert dollars["reread"] == pytest.approx(dollars["cache_read"] + dollars["lost"])


def test_tools_that_were_never_called_are_named_and_cannot_move_the_cursor(tmp_path):
    names = ["read", "unused", "ev\x1b[2Jil", *(f"extra_{n:02}" for n in range(12))]
    tools = [
        {"type": "function", "function": {"name": name, "description": "word " * 200}}
        for name in names
    ]
    path = tmp_path / "tools.jsonl"
    path.write_text(json.dumps({**record("c", 4), "tools": tools}) + "\n", encoding="utf-8")
    text = replay(path).stdout
    assert "14 of 15 tools were never called, and took" in text
    assert "and 9 more" in text
    assert "\x1b" not in text
    assert set(as_json(path)["never_called"]) == set(names) - {"read"}


def test_the_line_to_type_is_that_of_the_setting_that_was_chosen(screen, figures):
    client = figures["clients"]["Claude Code"]
    assert client["best"] is not None
    lines = [line.strip().partition("  ")[0] for line in screen.stdout.splitlines()]
    assert set(client["lines"]) <= set(lines)
    best = client["settings"][client["best"]]
    assert best["hidden_share"] <= client["trimtab"]["hidden_share"]
    cheaper = [s for s in client["settings"].values() if s["saved"] > best["saved"]]
    assert all(one["hidden_share"] > client["trimtab"]["hidden_share"] for one in cheaper)


def test_the_last_line_is_a_sentence_to_act_on(screen, figures):
    sentence = screen.stdout.splitlines()[-1]
    assert figures["sentences"] == [sentence]
    assert sentence.startswith("Claude Code: type ")
    client = figures["clients"]["Claude Code"]
    saved = client["settings"][client["best"]]["saved"]
    assert f"It would have saved {100 * saved:.0f} %" in sentence


def make_study(client: str, *, saved: float) -> ClientStudy:
    """A study of a client that is told its first setting, or that has none worth it."""
    settings = {setting.name: setting for setting in list_settings(client)}
    name = next(iter(settings))
    saving = Saving(cost=1 - saved, baseline=1, references=1_000, hidden=0)
    advice = choose_settings({name: saving, TRIMTAB.name: saving})
    return ClientStudy(
        client=client,
        sessions=9,
        calls=900,
        settings=settings,
        advice=advice,
        advice_by_model={"gpt-5.5": choose_settings({TRIMTAB.name: saving})},
        error=None,
    )


def test_each_client_with_advice_gets_a_sentence_at_the_end():
    studies = [make_study("Claude Code", saved=0.1), make_study("Codex", saved=0.2)]
    screen = Screen(payments=Payments(), studies=studies, unreadable=0)
    first, second = list_screen_lines(screen)[-2:]
    assert first.startswith("Claude Code: type /autocompact 100k")
    assert second.startswith("Codex: type model_auto_compact_token_limit = 60000")
    assert "Only gpt-5.5? Change nothing." in list_screen_lines(screen)


def test_clients_without_advice_are_left_unchanged():
    studies = [make_study("Claude Code", saved=0.01), make_study("Codex", saved=0.01)]
    screen = Screen(payments=Payments(), studies=studies, unreadable=0)
    assert list_screen_lines(screen)[-1] == (
        "Leave Claude Code and Codex unchanged: no setting saves 3 % unless it hides more than "
        "Trimtab's default would."
    )


def test_what_filled_the_window_is_named_with_its_tool(screen):
    _, _, filled = screen.stdout.partition("by each later call)\n")
    line = filled.splitlines()[0]
    assert re.match(r" +\$[\d.]+  Bash of src/file_\d+.py: [\d,]+ tokens,$", line)


def test_json_has_the_figures_of_the_screen_under_plain_names(figures):
    assert set(figures) == {
        *("paid", "lost", "fillings", "never_called"),
        *("clients", "skipped", "sentences"),
    }
    assert figures["paid"]["by_kind"]["Claude Code"]["calls"] == 123
    assert figures["clients"]["Claude Code"]["error"] < 0.1


def test_a_report_opens_the_sessions_in_the_pages_of_the_inspector(paid_logs, tmp_path):
    folder = tmp_path / "report"
    done = replay(paid_logs, "--report", folder)
    assert done.exit_code == 0, done.output
    assert f"Report: {folder}/index.html" in done.stderr
    assert len(list(folder.glob("session-*.html"))) == 3
    assert 'id="answer"' in (folder / "index.html").read_text(encoding="utf-8")


def test_no_text_of_a_log_is_on_the_screen(screen):
    for word in ("symbol_", "main_module"):
        assert word not in screen.stdout + screen.stderr


def test_few_sessions_are_left_as_they_are(logs):
    assert replay(logs).stdout.splitlines()[-1] == (
        "Leave it as it is: these are too few sessions to judge by. Come back with 3 sessions and "
        "90 calls of one client."
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
    done = CliRunner().invoke(app, ["replay"], env=home)
    assert done.exit_code == 0, done.output
    assert f"{tmp_path}/.claude/projects and {tmp_path}/.codex/sessions" in done.stderr
    empty = {**home, "HOME": str(tmp_path / "nobody")}
    done = CliRunner().invoke(app, ["replay"], env=empty)
    assert done.exit_code == 2
    assert "no logs found in" in done.stderr


def test_lines_that_cannot_be_read_are_counted(paid_logs, tmp_path):
    text = (paid_logs / "secret-name-0.jsonl").read_text(encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(text + "the secret word\n{}[\n", encoding="utf-8")
    done = replay(tmp_path)
    assert "Skipped 2 entries of 1 file that could not be read" in done.stderr
    assert "secret word" not in done.output
    assert as_json(tmp_path)["skipped"] == 2


def own_log(path, *, model, rounds, **options):
    """A log of a session of ours."""
    context = Context(model=model, dialect="openai_chat", **options)
    for wire in wires(rounds)[1:]:
        if wire["role"] == "assistant":
            context.request()
        context.add(wire)
    path.write_text("\n".join(context.dump()), encoding="utf-8")
    return path


def test_each_session_is_replayed_with_its_own_model_unless_one_is_named(tmp_path, logs):
    paths = [
        own_log(tmp_path / f"{model}.jsonl", model=model, rounds=rounds)
        for model, rounds in (("gpt-4.1", 2), ("gpt-5", 4))
    ]
    assert as_json(*paths)["clients"]["Trimtab"]["calls"] == 8
    warning = "assuming model claude-sonnet-4-5 for logs that name none"
    assert warning in replay(logs).stderr
    assert warning not in replay(logs, "--model", "gpt-5").stderr


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
    assert ("Too few to judge:" in replay(path).stdout) is few


def test_a_table_fits_a_terminal_of_a_hundred_columns(screen):
    tables = [line for line in screen.stdout.splitlines() if line.startswith("  ")]
    assert max(len(line) for line in tables) <= 100


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    done = replay(path)
    assert done.exit_code == 1
    assert "x.jsonl, line 1: expected JSON" in done.stderr.replace("\n", "")
    assert "hello" not in done.output


def test_a_place_without_conversations_says_what_is_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("Buy milk.\n", encoding="utf-8")
    done = replay(tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"no conversations found in {tmp_path}; supported formats: a trimtab log" in done.stderr
    assert "in files whose names end in .json, .jsonl\n" in done.stderr


def test_one_session_with_one_call_is_said_in_the_singular(tmp_path):
    path = tmp_path / "own.jsonl"
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    path.write_text("".join(json.dumps(one) + "\n" for one in said), encoding="utf-8")
    told = " ".join(replay(path).stdout.split())
    assert "What you paid is not in these logs: 1 call without usage." in told
    assert "(1 call of 1 session replayed)" in told


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
    assert as_json(kept)["clients"]["Trimtab"]["calls"] == 4


@pytest.mark.process
def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None\nfrom trimtab.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'trimtab[cli]'" in done.stderr
