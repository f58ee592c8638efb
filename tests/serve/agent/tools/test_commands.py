"""What a line of shell runs, and that what is allowed runs nothing else: bash is the judge."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.durations import measure_cpu_s
from trimtab_serve.agent.tools.permissions.possible_commands import iterate_all_conceivable_commands
from trimtab_serve.agent.tools.permissions.rules import PermissionRules, decide_permission
from trimtab_serve.agent.tools.permissions.shell_parser import AmbiguousShellLine, parse_shell_line

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
    "git diff\\\ntool -y": [("git", "difftool", "-y")],
    "l\\\ns\\\n -l": [("ls", "-l")],
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
    "X\\\n=1 ls",
    ">/dev/null X=1 ls",
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
    "ls\u00a0x",
    "ls\u2028x",
    "ls \u200bx",
    "ls a\u202eb",
    "'' ls",
    "'ls -l' x",
    "$((1+1))",
    "ls ;; rm",
)


@pytest.mark.parametrize("line", PLAIN, ids=repr)
def test_plain_lines_are_read_as_the_shell_reads_them(line):
    assert [command.texts for command in parse_shell_line(line)] == PLAIN[line]


@pytest.mark.parametrize("line", [each for each in UNSURE if each != "ls ;; rm"], ids=repr)
def test_whatever_is_not_plain_is_unsure(line):
    with pytest.raises(AmbiguousShellLine):
        parse_shell_line(line)


@pytest.mark.parametrize("line", UNSURE, ids=repr)
def test_what_is_not_plain_is_never_allowed_by_a_pattern_for_its_first_word(line):
    rules = PermissionRules(default="ask", allow=("ls*", "echo*", "cat*"), is_shell=True)
    assert decide_permission(rules, line).permission == "ask"


def test_it_is_known_what_the_shell_puts_other_words_in_place_of():
    (command,) = parse_shell_line("cat *.py '*' \\* $X \"$X\" 'a$' a[b]")
    assert [word.text for word in command.words if word.has_glob] == ["*.py", "a[b]"]
    assert [word.text for word in command.words if word.has_variable] == ["$X", "$X"]


def test_it_is_known_what_reads_the_output_of_another():
    line = "a | b; c |& d || e |\n f && g"
    assert [command.reads_pipe for command in parse_shell_line(line)] == [
        *(False, True, False, True, False, True, False)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /",
        "rm",
        "RM x",
        "ls; rm -rf /",
        "ls\nrm  -rf\t/",
        "ls|rm x",
        "/bin/rm -rf /",
        "'r'm x",
        "r\\m x",
        "r\\\nm x",
        "sudo rm x",
        "sudo -u root rm x",
        "env X=1 rm x",
        "X=1 rm x",
        "nice -n 5 /usr/bin/rm x",
        "timeout 5 rm x",
        "xargs rm",
        "echo / | xargs rm -rf",
        "sh -c 'ls; rm x'",
        "bash -c \"sh -c 'rm x'\"",
        "bash -c rm",
        "eval 'rm x'",
        "find . -exec rm {} +",
        "find . -exec rm '{}' +",
        "git -c alias.x='!rm' x",
        "GIT_PAGER=rm git -p log",
        "sort --compress-program=rm x",
        "tar --checkpoint-action=exec='rm x' -cf y z",
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
        rules = PermissionRules(default=default, allow=("*",), deny=("rm *",), is_shell=True)
        assert decide_permission(rules, line).permission == "deny", list(
            iterate_all_conceivable_commands(line)
        )


@pytest.mark.parametrize("pattern", ["git push*", "git push *", "git push", "GIT PUSH"])
@pytest.mark.parametrize(
    "line",
    [
        *("git push", "git push -f origin", "git -C . push", "git -C . -c x=y push origin"),
        *("git --no-pager push origin", "sudo git -C . push", "git 'push'", "/usr/bin/git push"),
    ],
)
def test_a_denied_command_of_a_program_is_found_behind_its_options(pattern, line):
    rules = PermissionRules(default="allow", deny=(pattern,), is_shell=True)
    assert decide_permission(rules, line).permission == "deny"
    assert decide_permission(rules, "git status").permission == "allow"


def test_of_several_patterns_that_deny_the_first_is_named():
    rules = PermissionRules(default="allow", deny=("git *", "git push", "ls", "rm"), is_shell=True)
    assert decide_permission(rules, "rm x; ls; git push").pattern == "git *"
    assert decide_permission(rules, "rm x; ls").pattern == "ls"


def test_a_long_line_is_judged_at_once():
    rules = PermissionRules(default="allow", deny=("rm -rf *", "git * --force*"), is_shell=True)
    line = f"sudo {'a ' * 10_000}"

    def judge() -> None:
        assert decide_permission(rules, line).permission == "allow"
        assert decide_permission(rules, f"{line} rm -rf /").permission == "deny"

    assert measure_cpu_s(judge, enough_s=5) <= 5


def test_a_denied_name_may_go_on():
    rules = PermissionRules(default="allow", deny=("mkfs*",), is_shell=True)
    assert decide_permission(rules, "mkfs.ext4 /dev/sda").permission == "deny"


@pytest.mark.parametrize(
    "line",
    [
        *("grep -r rm src", "git commit -m 'rm the old file; rm x'", "ls rm", "echo 'rm x'"),
        *("git log -Srm", "git rm x", "mkdir -p rm", "gcc -o rm rm.c"),
    ],
)
def test_a_denied_word_among_the_arguments_of_another_program_is_no_reason(line):
    rules = PermissionRules(default="allow", deny=("rm *",), is_shell=True)
    assert decide_permission(rules, line).permission == "allow"


@pytest.mark.parametrize(
    "line", ["$(printf 'r%s' m) x", "r? x", "env $X y", "sudo r? x", "xargs r*"]
)
def test_a_shell_that_may_do_all_but_something_asks_about_what_could_hide_it(line):
    rules = PermissionRules(default="allow", deny=("rm *",), is_shell=True)
    assert decide_permission(rules, line).permission == "ask"
    assert (
        decide_permission(PermissionRules(default="allow", is_shell=True), line).permission
        == "allow"
    )


SIGNS = """cat bad 2>&1 >/dev/null >/dev/nullx >x <x && || |& &> >& <<E <( $( $X ${X} $' $" eval if
then fi while do done case esac in function time ! [[ X=1 PATH=. exec command \\ ' " ` ( ) { } # * ?
[ ] ~ = , a 1 - $ & | : % ^ @ + . / \\\\"""
GAPS = [" ", " ", " ", "\n", "\t", ";", "; ", "\\\n", "\r", "\x0b", "\u00a0", "é", "\0"]
PIECES = st.sampled_from([*SIGNS.split(), "cat a", "bad a", "cat -x 'a b'", *GAPS])
LINES = st.lists(PIECES, max_size=12).map("".join)
BEGUN = LINES.map("cat {}".format)
ALLOWING = PermissionRules(default="ask", allow=("cat *",), is_shell=True)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A folder of programs: `cat`, which tells its words, and others that tell that they ran."""
    root = tmp_path_factory.mktemp("stage")
    (root / "bin").mkdir()
    for name in ("cat", "bad", "a", "X", "e", "cata", "catcat"):
        program = root / "bin" / name
        told = f'printf "%s\\0" "$@" $\'\\1\' >> "{root}/words"'
        if name != "cat":
            told = f': > "{root}/ran-{name}"'
        program.write_text(f"#!/bin/bash\n{told}\n")
        program.chmod(0o755)
    (root / "cwd").mkdir()
    return root


def runs(stage: Path, line: str) -> tuple[list[str], list[tuple[str, ...]]]:
    """What bash runs or writes for it, other than `cat`; and the words of each `cat`."""
    env = {"PATH": str(stage / "bin"), "LANG": os.environ.get("LANG", "C.UTF-8")}
    ours, theirs = os.pipe()
    with os.fdopen(ours) as held:
        subprocess.run(
            ["/bin/bash", "-c", "--", line],
            cwd=stage / "cwd",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs],
            timeout=20,
            check=False,
        )
        os.close(theirs)
        # What runs in the background holds the other end until it is over.
        held.read()
    words = stage / "words"
    told = words.read_text(encoding="utf-8").split("\1\0")[:-1] if words.exists() else []
    words.unlink(missing_ok=True)
    found = [*stage.glob("ran-*"), *(stage / "cwd").iterdir()]
    for each in found:
        each.unlink()
    return [each.name for each in found], [tuple(each.split("\0")[:-1]) for each in told]


@pytest.mark.process
@settings(max_examples=1_500, deadline=None)
@given(line=BEGUN | LINES)
def test_no_line_that_a_pattern_allows_runs_anything_else_or_writes_a_file(stage, line):
    if decide_permission(ALLOWING, line).permission == "allow":
        assert "\0" not in line
        done, calls = runs(stage, line)
        assert done == []
        read = [command.texts[1:] for command in parse_shell_line(line)]
        assert [words for words in calls if words not in read] == []


@pytest.mark.process
def test_the_judge_would_notice(stage):
    assert runs(stage, "cat; bad a") == (["ran-bad"], [()])
    assert runs(stage, "cat 'a b' c > here; cat -d") == (["here"], [("a b", "c"), ("-d",)])


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(line=WORD | LINES, rest=WORD)
def test_reading_a_line_never_fails_and_finds_the_line_itself(line, rest):
    found = list(iterate_all_conceivable_commands(line + rest))
    assert found[0] == line + rest


@given(before=LINES, after=st.sampled_from(["; ", "\n", " && ", " | ", " & "]))
def test_a_denied_command_at_the_end_of_a_plain_line_is_always_found(before, after):
    try:
        parse_shell_line(before)
    except AmbiguousShellLine:
        return
    rules = PermissionRules(default="allow", allow=("*",), deny=("bad *",), is_shell=True)
    assert decide_permission(rules, f"{before}{after}bad thing").permission == "deny"
