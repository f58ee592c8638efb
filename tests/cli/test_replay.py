import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.replay.conversations import record, wires
from trimtab import Context
from trimtab.cli.app import app
from trimtab.cli.replay import parse_setups, parse_token_count


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "logs.jsonl"
    lines = [record(f"c{i}", 3 + 6 * i, first=50 * i) for i in range(4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def table(logs):
    """What is printed without any option."""
    return replay(logs).stdout


def replay(*arguments):
    return CliRunner().invoke(app, ["replay", "--jobs", "1", *map(str, arguments)])


def as_json(*arguments):
    done = replay(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_version_is_said():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout.split()[0]) == (0, "trimtab")


def test_a_table_has_a_row_for_each_policy_and_says_what_it_means(logs):
    done = replay(logs, "--policies", "full,layered:naive,auto:cost")
    assert done.exit_code == 0, done.output
    for name in ("full", "layered:naive", "auto:cost"):
        assert sum(line.split()[:1] == [name] for line in done.stdout.splitlines()) == 2
    assert "4 conversations, 52 calls, claude-sonnet-4-5, window 200,000" in done.stdout
    told = " ".join(done.stdout.split())
    assert "× cheaper: than full" in told
    assert "pauses between calls" not in told
    explained = replay(logs, "--policies", "full", "--notes")
    assert "pauses between calls: modelled" in " ".join(explained.stdout.split())


def test_under_the_table_stand_six_lines_at_most(table):
    below = table.rpartition("auto ")[2].splitlines()[1:]
    assert 3 < len([line for line in below if line.strip()]) <= 6


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
    done = replay(*paths, "--policies", "full")
    assert "2 conversations, 7 calls, gpt-4.1, window 24,000" in done.stdout
    assert "is assumed" not in done.stderr
    chosen = as_json(*paths, "--policies", "full", "--model", "gpt-5")
    assert (chosen["model"], chosen["window"]) == ("gpt-5", 400_000)
    assert as_json(*paths, "--policies", "full", "--window", "64k")["window"] == 64_000


def test_if_logs_name_several_models_the_one_with_most_calls_is_taken(tmp_path, logs):
    paths = [
        own_log(tmp_path / f"{model}.jsonl", model=model, rounds=rounds)
        for model, rounds in (("gpt-4.1", 2), ("gpt-5", 4))
    ]
    done = replay(*paths, "--policies", "full")
    assert "gpt-5, window 400,000" in done.stdout
    assert (
        "all calls are replayed with gpt-5: the recordings name gpt-5 (5 calls), gpt-4.1 (3 calls);"
        " --model chooses another"
    ) in done.stderr
    assert (
        "claude-sonnet-4-5: the recordings do not name a model"
        in replay(logs, "--policies", "full").stderr
    )


def test_a_model_that_the_catalog_does_not_have_is_named_with_similar_ones(logs):
    done = replay(logs, "--policies", "full", "--model", "claude-opus4-8")
    assert "claude-opus4-8 is not in the catalog: did you mean claude-opus-4-8" in done.stderr
    assert "200,000 tokens" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--report", "nowhere/x.html"], "the folder nowhere does not exist; create it"),
        (["--report", "."], "--report . is a folder; name a file"),
        (["--png", "file"], "--png file is a file; name a folder"),
    ],
)
def test_a_report_that_cannot_be_written_is_found_before_the_replay(
    options, words, logs, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = replay(logs, *options)
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_path_that_does_not_exist_is_named(tmp_path):
    done = replay(tmp_path / "none")
    assert done.exit_code == 2
    assert "none does not exist; name a file or a folder" in done.stderr


@pytest.mark.parametrize(("many", "rounds", "few"), [(2, 40, True), (3, 20, True), (3, 40, False)])
def test_too_few_conversations_or_calls_are_no_ground_to_judge_by(many, rounds, few, tmp_path):
    path = tmp_path / "some.jsonl"
    lines = [record(f"c{n}", rounds, first=50 * n) for n in range(many)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = replay(path, "--policies", "full")
    assert ("too little data" in " ".join(done.stdout.split())) is few


def test_a_table_fits_a_narrow_terminal(table):
    assert "…" not in table
    assert max(len(line) for line in table.splitlines()) <= 80


def test_json_holds_every_setup_and_how_it_was_measured(logs):
    data = as_json(logs, "--policies", "full,layered", "--model", "gpt-5", "--window", "64k")
    assert (data["model"], data["window"], data["tokenizer"]) == ("gpt-5", 64_000, "o200k_base")
    assert data["pauses"] == {"recorded": 0, "modelled": 4}
    assert [row["setup"] for row in data["setups"]] == ["full", "layered"]
    assert data["sources"] == {"made/up": 4}
    assert data["setups"][0]["recall"] == 1.0
    assert set(data["setups"][1]["cheaper"]) == {"OpenAI", "Anthropic", "no cache"}


def test_recordings_without_a_system_prompt_are_told(logs, tmp_path):
    bare = record("bare", 3)
    del bare["messages"][0]
    path = tmp_path / "bare.jsonl"
    path.write_text(json.dumps(bare) + "\n", encoding="utf-8")
    said = "recordings have no system prompt"
    assert not [n for n in as_json(logs, "--policies", "full")["notes"] if said in n]
    (note,) = [n for n in as_json(logs, path, "--policies", "full")["notes"] if said in n]
    assert note.startswith("1 of 5 ")


def test_conversations_are_chosen(logs):
    assert as_json(logs, "--policies", "full", "--min-calls", "10")["conversations"] == 3
    assert as_json(logs, "--policies", "full", "--limit", "1")["conversations"] == 1
    halves = [
        as_json(logs, "--policies", "full", "--half", half)["conversations"]
        for half in ("even", "odd")
    ]
    assert sum(halves) == 4


@pytest.mark.slow
def test_a_report_and_pictures_are_written(logs, tmp_path):
    page, folder = tmp_path / "out.html", tmp_path / "png"
    done = replay(logs, "--policies", "full", "--limit", 1, "--report", page, "--png", folder)
    assert done.exit_code == 0, done.output
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "cumulative.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policies", "fool"], "unknown policy 'fool'; choose from full, layered"),
        (["--policies", "auto:free"], "unknown 'free' in 'auto:free'"),
        (["--policies", ","], "no policy is named"),
        (["--goal", "fame"], "unknown goal 'fame'"),
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
    assert done.exit_code == 2
    assert "x.jsonl, line 1: expected JSON" in done.stderr.replace("\n", "")


def test_nothing_left_to_replay_is_said(logs):
    done = replay(logs, "--min-calls", "99")
    assert done.exit_code == 1
    assert "4 conversations found, but none is left" in done.stderr


def test_a_place_without_conversations_says_what_is_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("Buy milk.\n", encoding="utf-8")
    done = replay(tmp_path, "--min-calls", "30")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"trimtab replay: no conversations found in {tmp_path}; supported formats: a trimtab log "
        "or export, conversations with `messages`, a list of OpenAI or Anthropic messages, one "
        "such message per line, a Claude Code transcript or a Codex rollout, in files whose names "
        "end in .json, .jsonl, .json.gz, .jsonl.gz\n"
    )


def test_one_conversation_with_one_call_is_said_in_the_singular(tmp_path):
    path = tmp_path / "own.jsonl"
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    path.write_text("".join(json.dumps(one) + "\n" for one in said), encoding="utf-8")
    told = " ".join(replay(path, "--policies", "full").stdout.split())
    assert "1 conversation, 1 call, claude-sonnet-4-5" in told
    assert "too little data: 1 conversation with 1 call on average" in told


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
    assert "1 conversation, 4 calls, gpt-4.1" in replay(kept, "--policies", "full").stdout


@pytest.mark.parametrize(
    ("text", "tokens"), [("200k", 200_000), ("1M", 1_000_000), ("1.5k", 1_500), ("64_000", 64_000)]
)
def test_windows_are_typed_as_people_do(text, tokens):
    assert parse_token_count(text) == tokens


def test_a_policy_carries_its_goal_and_its_marks():
    one, two, three = parse_setups(
        "auto:cost,layered:naive,auto", goal="quality", window=9, model="m"
    )
    assert one.options == {
        "policy": "auto",
        "goal": "cost",
        "context_window": 9,
        "dialect": "openai_chat",
    }
    assert (two.options["goal"], two.naive_marks) == ("quality", True)
    assert (three.options["goal"], three.naive_marks) == ("quality", False)


@pytest.mark.process
def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None\nfrom trimtab.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'trimtab[cli]'" in done.stderr
