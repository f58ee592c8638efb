"""Which command a pattern of a shell allows: word by word, and only what is known or spelt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_serve.agent.tools.permissions.read_only_check import explain_not_read_only
from trimtab_serve.agent.tools.permissions.read_only_programs import READ_ONLY_USAGES
from trimtab_serve.agent.tools.permissions.rules import PermissionRules, decide_permission
from trimtab_serve.agent.tools.permissions.shell_parser import parse_shell_line
from trimtab_serve.agent.tools.permissions.shell_patterns import parse_shell_pattern


def allows(pattern: str, line: str) -> bool:
    return verdict(pattern, line).permission == "allow"


def verdict(pattern, line):
    return decide_permission(PermissionRules(default="ask", allow=(pattern,), is_shell=True), line)


@pytest.mark.parametrize("pattern", ["git diff*", "git diff *"])
def test_a_star_at_the_end_stands_for_further_words_and_for_none(pattern):
    assert allows(pattern, "git diff")
    assert allows(pattern, "git diff --stat a b")
    assert not allows(pattern, "git difftool")
    assert not allows(pattern, "git")
    assert not allows(pattern, "git status")


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("ls*", "lsblk"),
        ("ls*", "lsof -p 1"),
        ("ls **", "lsblk"),
        ("ls**", "lsblk"),
        ("l?", "lx"),
        ("git d*f", "git d x f"),
        ("git d*l", "git difftool"),
        ("head", "head -1"),
        ("head -1", "head -1 x"),
        ("LS *", "ls"),
        ("ls *", "LS"),
        ("ls *", "./ls"),
        ("ls *", "/srv/ls"),
        ("cat a*b", "cat a b"),
    ],
)
def test_a_pattern_matches_whole_words(pattern, line):
    assert not allows(pattern, line)


@pytest.mark.parametrize(
    ("line", "allowed"),
    {
        "cat src/a.py": True,
        "cat src/a/b.py": True,
        "cat 'src/a.py'": True,
        "cat src/*.py": True,
        "cat src/a src/b": False,
        "cat src/a /etc/shadow": False,
        "cat src/../../etc/shadow": False,
        "cat src/..": False,
        "cat src/.*/x": False,
        "cat src/$X": False,
        'cat "src/$X"': False,
        "cat src/a{,/../../x}": False,
        "cat 'src/a /etc/shadow'": True,
        "cat src": False,
        "cat src2/a": False,
    }.items(),
)
def test_a_star_inside_a_word_stays_in_it(line, allowed):
    assert allows("cat src/*", line) == allowed


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("cat /var/log/*", "cat /var/log/syslog"),
        ("cat ../shared/*", "cat ../shared/a.txt"),
        ("ls ~", "ls '~'"),
        ("make test", "make test"),
        ("make test", "make 'test' 2>&1"),
        ("python scripts/*", "python scripts/build.py"),
        ("python *.py", "python build.py"),
        ("mkdir build/*", "mkdir build/a/b"),
        ("git diff --output=*", "git diff --output=x.patch"),
        ("git diff --output=x.patch", "git diff --output=x.patch"),
        ("rm ./*.pyc", "rm ./*.pyc"),
        ("./run.sh", "./run.sh"),
    ],
)
def test_what_is_not_known_to_only_read_is_allowed_where_each_word_is_spelt(pattern, line):
    assert allows(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("make *", "make test"),
        ("make *", "make"),
        ("make test *", "make test X=1"),
        ("make te?t", "make test"),
        ("mytool *", "mytool x"),
        ("python *", "python x.py"),
        ("python -m *", "python -m http.server"),
        ("python *.py", "python /tmp/x.py"),
        ("python *.py", "python ../x.py"),
        ("python *.py", "python -x.py"),
        ("python *.py", "python @x.py"),
        ("python *.py", "python ~/x.py"),
        ("python *.py", "python *.py"),
        ("python *.py", "python 'a b.py'"),
        ("python scripts/*", "python scripts/../x.py"),
        ("python scripts/*", "python 'scripts/a;b'"),
        ("python scripts/.*", "python scripts/../x.py"),
        ("env A=*", "env A=/bin/x"),
        ("env A=*", "env 'A=$(x)'"),
        ("git diff -*", "git diff --output=x"),
        ("git diff --*", "git diff --output=x"),
        ("git diff --out*=x", "git diff --output=x"),
        ("git diff --output=*", "git diff --output=/etc/x"),
        ("git diff --output=*", "git diff --output=../x"),
        ("git diff --output=* *", "git diff --output=x HEAD"),
        ("sort -o *", "sort -o x y"),
        ("find . -exec *", "find . -exec ls ';'"),
        ("find * -delete", "find . -delete"),
        ("bash -c *", "bash -c ls"),
        ("cat /var/log/*", "cat /var/log/../../etc/shadow"),
        ("cat /var/log/*", "cat /var/log/x /etc/shadow"),
        ("*", "make"),
        ("* test", "make test"),
        ("*.sh", "./run.sh"),
        ("./scripts/*", "./scripts/run.sh"),
        ("m* test", "make test"),
    ],
)
def test_what_is_not_known_to_only_read_is_not_meant_by_a_star(pattern, line):
    assert not allows(pattern, line)


def test_a_program_that_is_not_known_gets_nothing_piped_into_it():
    rules = PermissionRules(
        default="ask", allow=("sh -s", "cat *", "tail *", "make"), is_shell=True
    )
    assert decide_permission(rules, "make | tail -1").permission == "allow"
    assert decide_permission(rules, "cat x | sh -s").permission == "ask"
    assert decide_permission(rules, "cat x |\n sh -s").permission == "ask"
    assert decide_permission(rules, "cat x | tail -1; sh -s").permission == "allow"


def test_after_a_cd_only_what_reads_by_itself_is_allowed():
    rules = PermissionRules(
        default="ask", allow=("cd *", "cat *", "git log *", "./x"), is_shell=True
    )
    assert decide_permission(rules, "cd src && cat a.py").permission == "allow"
    assert decide_permission(rules, "cd src && git log").permission == "ask"
    assert decide_permission(rules, "cd src && ./x").permission == "ask"
    assert decide_permission(rules, "git log; ./x").permission == "allow"


@pytest.mark.parametrize("line", ["cd", "cd ..", "cd /", "cd ~", "cd $X", "cd s*", "cd a b"])
def test_a_cd_stays_in_the_folder(line):
    assert not allows("cd *", line)
    assert allows("cd *", "cd src")


def test_a_line_that_is_the_pattern_is_allowed_whatever_it_holds():
    assert allows("make | tee build.log > x", "make | tee build.log > x")
    assert not allows("make | tee build.log > x", "make | tee build.log > y")


def test_a_pattern_with_a_star_is_no_line():
    """In a folder with a file called `--output=x` the shell would make an option of the star."""
    assert not allows("git diff *", "git diff *")
    assert not allows("git diff HEAD > *", "git diff HEAD > *")
    assert allows("git diff *", "git diff -- *")
    assert allows("git diff *", "git diff ./*")


def test_a_star_alone_means_what_is_known_to_only_read_and_runs_nothing():
    for line in ("ls -la", "git log -1", "cat x | sort | uniq -c"):
        assert allows("*", line)
    for line in ("make", "pytest", "python3 -m pytest", "git push", "sort -o x y"):
        assert not allows("*", line)


def test_what_runs_the_tests_of_the_folder_has_to_be_named():
    assert allows("pytest *", "pytest -q tests")
    assert allows("python3 -m pytest *", "python3 -m pytest -q tests -k 'a and b'")
    assert not allows("python3 *", "python3 -m pytest")
    assert not allows("pytest *", "pytest -p evil")
    assert not allows("pytest *", "pytest @options")
    assert not allows("pytest *", "pytest /tmp/x")


@pytest.mark.parametrize(
    ("pattern", "line", "why"),
    [
        (
            "git diff *",
            "git diff --output=x",
            "git diff with --output=x is not known to be read-only",
        ),
        ("git *", "git push -f", "git push is not known to be read-only"),
        ("make *", "make all", "make is not known to be read-only"),
        ("cat *", "cat /etc/shadow", "/etc/shadow is outside of the folder"),
        ("cat *", "cat $X", "$X holds a variable"),
        ("uniq *", "uniq a b", "uniq may write to b"),
        ("find *", "find *", "* could expand to a file whose name is an option; ./* could not"),
        (
            "*",
            "pytest",
            "pytest runs code from the folder, so the pattern must begin with pytest",
        ),
        (
            "sh -s",
            "ls | sh -s",
            (
                "sh is not known to be read-only, and the pattern does not cover the input from "
                "the pipe"
            ),
        ),
    ],
)
def test_it_is_said_why_a_pattern_that_matches_does_not_allow(pattern, line, why):
    rules = PermissionRules(default="ask", allow=("ls", pattern), is_shell=True)
    assert decide_permission(rules, line).why == f"the pattern {pattern!r} does not allow it: {why}"


def test_a_reason_is_short_however_long_the_word_is():
    assert len(verdict("cat *", f"cat /{'x' * 100_000}").why) < 300


DANGEROUS = {
    ("git", "diff"): "output ext-diff textconv no-index output-indicator-new",
    ("git", "log"): "output ext-diff textconv show-signature remerge-diff stdin",
    ("git", "show"): "output ext-diff textconv show-signature",
    ("git", "grep"): "open-files-in-pager textconv no-index file",
    ("git", "status"): "output",
    ("git", "branch"): "delete move copy force edit-description set-upstream-to unset-upstream",
    ("git", "blame"): "contents",
    ("sort",): "output compress-program temporary-directory files0-from random-source",
    ("rg",): "pre hostname-bin search-zip file",
    ("sed",): "in-place expression file",
    ("tree",): "output fromfile",
    ("date",): "set file reference",
    ("file",): "compile magic-file files-from uncompress",
    ("diff",): "paginate output from-file to-file",
    (
        "pytest",
    ): "rootdir confcutdir basetemp junit-xml junitxml log-file debug pdbcls override-ini "
    "config-file import-mode pyargs pastebin trace-config",
    ("uniq",): "output",
}


@pytest.mark.parametrize("head", DANGEROUS, ids=" ".join)
def test_no_abbreviation_of_an_option_that_writes_or_runs_is_known(head):
    for option in DANGEROUS[head].split():
        for size in range(1, len(option) + 1):
            short = option[:size]
            known = READ_ONLY_USAGES[head].long_options
            # An abbreviation that is an option by itself means that option.
            assert short == option or short in known or doubt_of(*head, f"--{short}=x")
            assert option not in known
            assert doubt_of(*head, f"--{option}=x")
            assert doubt_of(*head, f"--{option}", "x")


LETTERS = {
    ("git", "diff"): "Oo",
    ("git", "log"): "OoL",
    ("git", "grep"): "Of",
    ("git", "branch"): "dDmMcCfu",
    ("git", "tag"): "dfsumF",
    ("sort",): "oTS",
    ("rg",): "zf",
    ("sed",): "iefI",
    ("tree",): "oRH",
    ("date",): "sfr",
    ("file",): "Cmfz",
    ("diff",): "l",
    ("pytest",): "pcoW",
    ("uniq",): "o",
    ("find",): "fD",
}


@given(st.sampled_from(sorted(LETTERS)), st.data())
def test_no_cluster_of_letters_hides_one_that_writes_or_runs(head, data):
    flags = data.draw(st.text(st.sampled_from(READ_ONLY_USAGES[head].flags or "x"), max_size=3))
    letter = data.draw(st.sampled_from(LETTERS[head]))
    value = data.draw(st.sampled_from(["", "x", "1", "=x"]))
    assert doubt_of(*head, f"-{flags}{letter}{value}", "x")


FIND = "exec execdir ok okdir delete fprint fprint0 fprintf fls files0-from"


@pytest.mark.parametrize("test", FIND.split())
def test_find_only_finds(test):
    assert doubt_of("find", ".", f"-{test}", "x", ";")
    assert doubt_of("find", ".", "-name", "x") is None


SCRIPTS = {
    "1,5p": True,
    "$p": True,
    "1~2p": False,
    "/a/,/b/p": True,
    "s/a/b/g": True,
    "1p;5q": True,
    "/a/!d": True,
    "w x": False,
    "1w x": False,
    "e": False,
    "1e x": False,
    "s/a/b/e": False,
    "s/a/b/w x": False,
    "s/a/b/ge": False,
    "s/a/b/;e x": False,
    "1p\ne x": False,
    "/a\\/;e x/p": False,
    "/[/]e x/p": False,
    "r /etc/passwd": False,
    "1p;w x": False,
    "s|a|b|e": False,
    "y/a/b/;e": False,
}


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_sed_only_shows_and_replaces(script):
    assert (doubt_of("sed", "-n", script, "x") is None) == SCRIPTS[script]


def doubt_of(*words: str) -> str | None:
    (command,) = parse_shell_line(" ".join(f"'{word}'" for word in words))
    return explain_not_read_only(command)


TEXTS = st.text(st.sampled_from("ab*?[]/.-=~ "), max_size=8)


@given(TEXTS, TEXTS)
def test_a_pattern_is_read_whatever_it_is_and_a_star_more_never_matches_less(text, line):
    texts = tuple(line.split())
    if parse_shell_pattern(text).matches(texts):
        assert parse_shell_pattern(f"{text} *").matches(texts)
