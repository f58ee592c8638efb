"""Which outputs of Claude Code's tools are cut, and how."""

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.engine.tokens.piecewise import make_piecewise_count
from trimtab.integrations.claude_code.outputs import TOKENIZER_FAMILY, cap_output

LONG = "\n".join(f"row {number}: value {number * 37 % 1009}" for number in range(1_500))
count_tokens = make_piecewise_count(TOKENIZER_FAMILY)


def cap(tool, output, asked=None, max_tokens=1_000):
    numbers = count(1)
    event = {"tool_name": tool, "tool_input": asked or {}, "tool_response": output}
    before = json.dumps(event)
    capped = cap_output(event, max_tokens, lambda: f"/state/{next(numbers)}.txt")
    assert json.dumps(event) == before
    return capped


def bash(stdout, stderr="", **more):
    return {"stdout": stdout, "stderr": stderr, "interrupted": False, "isImage": False, **more}


def read(content, **more):
    lines = content.count("\n") + 1
    file = {"filePath": "/w/a.py", "content": content, "numLines": lines, "startLine": 1}
    return {"type": "text", "file": {**file, "totalLines": lines, **more}}


def test_a_command_keeps_both_ends_and_its_errors_and_names_the_file_in_its_first_line():
    text = LONG.replace("row 700:", "ERROR: row 700:")
    shown, whole = cap("Bash", bash(text))
    lines = shown["stdout"].split("\n")
    assert lines[0].startswith("[shortened: ~")
    assert lines[0].endswith(" · the whole text is in /state/1.txt]")
    assert lines[1].startswith("row 0:")
    assert lines[-1].startswith("row 1499:")
    assert any(line.startswith("ERROR: row 700:") for line in lines)
    assert ", 1 of them in between looks like an error" in lines[0]
    assert whole == {"/state/1.txt": text}
    assert {**shown, "stdout": text} == bash(text)
    assert count_tokens(shown["stdout"]) <= 1_000


def test_a_small_output_is_not_changed():
    assert cap("Bash", bash("4 passed\n")) is None
    assert cap("Read", read("a = 1\n")) is None


def test_an_output_is_cut_only_if_that_saves_a_worthwhile_part():
    lines = LONG.split("\n")
    slightly_longer, longer = "\n".join(lines[:130]), "\n".join(lines[:140])
    assert 1_000 < count_tokens(slightly_longer) <= 1_250 < count_tokens(longer)
    for tool, wrap in (("Bash", bash), ("Read", read)):
        assert cap(tool, wrap(slightly_longer)) is None
        assert cap(tool, wrap(longer)) is not None


def test_both_streams_share_the_tokens_and_the_smaller_one_stays_whole():
    shown, whole = cap("Bash", bash(LONG, "warning: old lock file\n" * 20))
    assert shown["stderr"] == "warning: old lock file\n" * 20
    assert list(whole.values()) == [LONG]
    shown, whole = cap("Bash", bash(LONG, LONG.replace("row", "err")))
    assert len(whole) == 2
    assert count_tokens(shown["stdout"] + shown["stderr"]) <= 1_050


def test_a_file_loses_its_end_and_the_other_lines_keep_their_numbers():
    shown, whole = cap("Read", read(LONG))
    file = shown["file"]
    header, *lines = file["content"].split("\n")
    assert whole == {}
    assert file["startLine"] == 0
    assert file["numLines"] == len(lines) + 1
    assert lines == LONG.split("\n")[: len(lines)]
    assert f"lines 1 to {len(lines):,} of 1,500 · read on with offset {len(lines) + 1}]" in header
    assert file["totalLines"] == 1_500


def test_a_long_line_is_cut_within_and_is_read_again_as_a_whole():
    text = "short\n" + "x1y2 " * 3_000
    shown, _ = cap("Read", read(text))
    header, first, part = shown["file"]["content"].split("\n")
    assert "line 2 only in part · read it whole with offset 2]" in header
    assert first == "short"
    assert text.split("\n")[1].startswith(part)


@pytest.mark.parametrize("chosen", [{"offset": 1}, {"limit": 2_000}, {"pages": "1-5"}])
def test_lines_that_the_model_has_chosen_stay(chosen):
    assert cap("Read", read(LONG), {"file_path": "/w/a.py", **chosen}) is None


@pytest.mark.parametrize(
    ("tool", "output", "asked"),
    [
        ("Read", read(LONG), {"file_path": "/h/.local/state/trimtab/claude-code/s/Bash-1.txt"}),
        ("Bash", bash(LONG), {"command": "cat ~/.local/state/trimtab/claude-code/s/Bash-1.txt"}),
        ("Grep", {"content": LONG}, {"path": "/x/trimtab/claude-code/s", "glob": ["*"]}),
    ],
)
def test_a_whole_text_of_ours_is_given_back_whole(tool, output, asked):
    assert cap(tool, output, asked) is None


@pytest.mark.parametrize(
    "output",
    [
        bash(LONG, isImage=True),
        bash(LONG, persistedOutputPath="/h/.claude/big.txt"),
        bash(3),
        [],
        None,
        7,
        LONG,
        {"content": LONG},
    ],
)
def test_an_output_of_a_command_in_another_form_stays(output):
    assert cap("Bash", output) is None


@pytest.mark.parametrize(
    "output",
    [
        {"type": "image", "file": {"base64": LONG}},
        {"type": "text", "file": None},
        {"type": "text"},
        read(LONG, startLine=5),
        read(LONG, startLine="1"),
        LONG,
        None,
    ],
)
def test_a_file_in_another_form_stays(output):
    assert cap("Read", output) is None


@pytest.mark.parametrize("tool", ["Edit", "Task", "../../etc", "", "mcp_x", "Glob"])
def test_other_tools_are_not_touched(tool):
    assert cap(tool, {"stdout": LONG, "content": LONG, "filenames": LONG.split("\n")}) is None


def test_a_tool_of_mcp_answers_with_a_text_or_with_blocks():
    shown, whole = cap("mcp__db__query", LONG)
    assert shown.startswith("[shortened: ")
    assert list(whole.values()) == [LONG]
    picture = {"type": "image", "source": {"data": "A" * 9_000}}
    shown, whole = cap("mcp__db__query", [picture, {"type": "text", "text": LONG}])
    assert shown[0] == picture
    assert shown[1]["text"].startswith("[shortened: ")
    assert set(shown[1]) == {"type", "text"}


def test_too_many_texts_for_the_tokens_stay_whole():
    assert cap("mcp__db__query", [{"type": "text", "text": LONG}] * 6) is None


def test_pages_and_matches_are_cut():
    shown, whole = cap("WebFetch", {"result": LONG, "url": "https://example.org", "code": 200})
    assert shown["url"] == "https://example.org"
    assert shown["result"].startswith("[shortened: ")
    shown, _ = cap("Grep", {"mode": "content", "content": LONG, "filenames": [], "numLines": 1_500})
    assert shown["content"].startswith("[shortened: ")
    assert list(whole.values()) == [LONG]


@given(
    st.sampled_from(["Bash", "Read", "Grep", "WebFetch", "mcp__a__b"]),
    st.text(st.characters(codec=None), max_size=300).map(lambda part: part * 40),
)
def test_any_characters_are_cut_and_what_is_stored_is_the_original(tool, text):
    outputs = {"Bash": bash(text), "Read": read(text), "Grep": {"content": text}}
    output = outputs.get(tool, {"result": text} if tool == "WebFetch" else text)
    capped = cap(tool, output, max_tokens=300)
    if capped is not None:
        shown, whole = capped
        assert set(whole.values()) <= {text}
        assert len(json.dumps(shown)) < len(json.dumps(output)) + 400
        if tool == "Read":
            assert text.startswith(shown["file"]["content"].partition("\n")[2])
