"""What a line of shell runs, and that what is allowed runs nothing else: bash is the judge."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.agent.commands import Unsure, runs_others, simple_commands, suspects
from trimtab.agent.permissions import Rules, judge

PLAIN = {
    "ls": [("ls",)],
    "ls -l  'a b' \"c d\" e\\ f": [("ls", "-l", "a b", "c d", "e f")],
    "a; b && c || d | e & f\ng": [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)],
    "make 2>&1 | tail -n 5": [("make",), ("tail", "-n", "5")],
    "make >/dev/null 2>&1; ls": [("make",), ("ls",)],
    "grep 'a$' x": [("grep", "a$", "x")],
    'echo $HOME "$USER!"': [("echo", "$HOME", "$USER!")],
    "git log HEAD~1 a#b": [("git", "log", "HEAD~1", "a#b")],
    "ls \\\n -l": [("ls", "-l")],
    "echo 'it''s' \"a\\\"b\"": [("echo", "its", 'a"b')],
    "": [],
}
UNSURE = (
    "echo `rm x`",
    "echo $(rm x)",
    'echo "$(rm x)"',
    'echo "`rm x`"',
    "echo ${x@P}",
    "echo $'\\'' ; rm -rf / #'",
    "echo # '\nrm -rf /\n# '",
    "ls > out",
    "ls < in",
    "cat <(rm x)",
    "cat <<E\n$(rm x)\nE",
    "ls &> out",
    "ls >/dev/null/../../tmp/x",
    "ls >&3",
    "(rm x)",
    "{ rm x; }",
    "ls() { rm x; }",
    "X=1 ls",
    "PATH=. ls",
    "a[1]=2 ls",
    "$EDITOR x",
    "/bin/r? x",
    "r{m,} x",
    "if ls; then rm x; fi",
    "! ls",
    "[[ -f x ]]",
    "ls 'a",
    'ls "a',
    "ls \\",
    "ls\rrm",
    "'' ls",
    "'ls -l' x",
    "$((1+1))",
    "ls ;; rm",
)


@pytest.mark.parametrize("line", PLAIN, ids=repr)
def test_plain_lines_are_read_as_the_shell_reads_them(line):
    assert simple_commands(line) == PLAIN[line]


@pytest.mark.parametrize("line", [each for each in UNSURE if each != "ls ;; rm"], ids=repr)
def test_whatever_is_not_plain_is_unsure(line):
    with pytest.raises(Unsure):
        simple_commands(line)


@pytest.mark.parametrize("line", UNSURE, ids=repr)
def test_what_is_not_plain_is_never_allowed_by_a_pattern_for_its_first_word(line):
    rules = Rules(default="ask", allow=("ls*", "echo*", "cat*"), by_command=True)
    assert judge(rules, line).permission == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /",
        "ls; rm -rf /",
        "ls\nrm  -rf\t/",
        "ls|rm x",
        "/bin/rm -rf /",
        "'r'm x",
        "r\\m x",
        "sudo rm x",
        "sudo -u root rm x",
        "env X=1 rm x",
        "X=1 rm x",
        "nice -n 5 /usr/bin/rm x",
        "timeout 5 rm x",
        "xargs rm x",
        "sh -c 'ls; rm x'",
        "bash -c \"sh -c 'rm x'\"",
        "eval 'rm x'",
        "find . -exec rm {} +",
        "find . -exec rm '{}' +",
        "echo $(rm x)",
        'echo "`rm x`"',
        "if true; then rm x; fi",
        "(cd /; rm x)",
        "{ rm x; }",
        "cat <(rm x)",
        "ls && ! rm x",
        "python3.12 -c 'x' ; rm x",
    ],
)
def test_what_is_denied_is_found_in_any_part_of_a_line(line):
    for default in ("ask", "allow"):
        rules = Rules(default=default, allow=("*",), deny=("rm *",), by_command=True)
        assert judge(rules, line).permission == "deny", list(suspects(line))


@pytest.mark.parametrize(
    "line", ["grep -r rm src", "git commit -m 'rm the old file; rm x'", "ls rm", "echo 'rm x'"]
)
def test_a_denied_word_among_the_arguments_of_another_program_is_no_reason(line):
    rules = Rules(default="allow", deny=("rm *",), by_command=True)
    assert judge(rules, line).permission == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "sudo ls",
        "env ls",
        "env X=1 rm",
        "sh -c ls",
        "/usr/bin/env ls",
        "python3.12 -c 1",
        "xargs ls",
    ],
)
def test_a_program_that_runs_others_is_only_allowed_by_its_name(line):
    assert judge(Rules(default="ask", allow=("*",), by_command=True), line).permission == "ask"
    named = f"{line.split()[0]} *"
    assert judge(Rules(default="ask", allow=(named,), by_command=True), line).permission == "allow"


def test_find_runs_others_only_where_it_is_told_to():
    runs = "find . -exec ls ';'"
    for pattern, permission in {"find *": "ask", "find * -exec ls *": "allow"}.items():
        rules = Rules(default="ask", allow=(pattern,), by_command=True)
        assert judge(rules, runs).permission == permission
        assert judge(rules, "find . -name x").permission == (
            "allow" if "-" not in pattern else "ask"
        )
    assert not runs_others(("find", ".", "-name", "x"))
    assert runs_others(("/usr/bin/find", ".", "-ok", "x"))


SIGNS = """ok bad 2>&1 >/dev/null >/dev/nullx >x <x && || |& &> >& <<E <( $( $X ${X} $' $" eval if
then fi while do done case esac in function time ! [[ X=1 PATH=. exec command \\ ' " ` ( ) { } # * ?
[ ] ~ = , a 1 - $ & | : % ^ @ + . / \\\\"""
GAPS = [" ", " ", " ", "\n", "\t", ";", "; ", "\\\n", "\r", "\x0b", "\u00a0", "é", "\0"]
PIECES = st.sampled_from([*SIGNS.split(), "ok a", "bad a", "ok -x 'a b'", *GAPS])
LINES = st.lists(PIECES, max_size=12).map("".join)
BEGUN = LINES.map("ok {}".format)
ALLOWING = Rules(default="ask", allow=("ok", "ok *"), by_command=True)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A folder of programs: `ok`, and all others that would tell that they ran."""
    root = tmp_path_factory.mktemp("stage")
    (root / "bin").mkdir()
    for name in ("ok", "bad", "a", "X", "e", "oka", "okok"):
        program = root / "bin" / name
        told = "" if name.startswith("ok") else f': > "{root}/ran-{name}"\n'
        program.write_text(f"#!/bin/bash\n{told}")
        program.chmod(0o755)
    (root / "cwd").mkdir()
    return root


def runs(stage: Path, line: str) -> list[str]:
    """What bash does with it, other than running `ok`."""
    env = {"PATH": str(stage / "bin"), "LANG": os.environ.get("LANG", "C.UTF-8")}
    subprocess.run(
        ["/bin/bash", "-c", "--", line],
        cwd=stage / "cwd",
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    found = [*stage.glob("ran-*"), *(stage / "cwd").iterdir()]
    for each in found:
        each.unlink()
    return [each.name for each in found]


@pytest.mark.process
@settings(max_examples=1_500, deadline=None)
@given(line=BEGUN | LINES)
def test_no_line_that_a_pattern_allows_runs_anything_else_or_writes_a_file(stage, line):
    if judge(ALLOWING, line).permission == "allow":
        assert "\0" not in line
        assert runs(stage, line) == []


@pytest.mark.process
def test_the_judge_would_notice(stage):
    assert runs(stage, "ok; bad a") == ["ran-bad"]
    assert runs(stage, "ok > here") == ["here"]


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(line=WORD | LINES, rest=WORD)
def test_reading_a_line_never_fails_and_finds_the_line_itself(line, rest):
    found = list(suspects(line + rest))
    assert found[0] == line + rest


@given(before=LINES, after=st.sampled_from(["; ", "\n", " && ", " | ", " & "]))
def test_a_denied_command_at_the_end_of_a_plain_line_is_always_found(before, after):
    try:
        simple_commands(before)
    except Unsure:
        return
    rules = Rules(default="allow", allow=("*",), deny=("bad *",), by_command=True)
    assert judge(rules, f"{before}{after}bad thing").permission == "deny"
