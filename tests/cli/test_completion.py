"""Completions in the shells that are there."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.running import run, trimtab

pytestmark = pytest.mark.process

BIN = str(Path(sys.executable).parent)
PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin"


def completed(shell, words):
    return trimtab(
        _TRIMTAB_COMPLETE=f"complete_{shell}",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
        _TYPER_COMPLETE_ARGS=words,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    ).out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_groups_and_options_are_completed(shell):
    assert "doctor" in completed(shell, "trimtab doc")
    assert "recall" in completed(shell, "trimtab session rec")
    assert "--offline" in completed(shell, "trimtab doctor --off")


@pytest.mark.parametrize(
    ("typed", "words", "expected"),
    [
        ("trimtab d", "(trimtab d)", {"demo", "doctor"}),
        ("trimtab session f", "(trimtab session f)", {"fork"}),
        ("trimtab init --m", "(trimtab init --m)", {"--model"}),
    ],
)
def test_bash_completes_with_the_script_that_it_is_shown(typed, words, expected, tmp_path):
    bash = shutil.which("bash")
    if bash is None or shutil.which("trimtab", path=BIN) is None:
        pytest.skip("there is no bash here, or trimtab is not installed as a program")
    script = (
        'eval "$(trimtab --show-completion)"\n'
        "complete -p trimtab >&2\n"
        f"COMP_WORDS={words} COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        "_trimtab_completion trimtab\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = run(bash, "--norc", "-c", script, cwd=tmp_path, PATH=PATH)
    assert "-F _trimtab_completion trimtab" in done.err
    assert set(done.out.split()) == expected, done.err


def test_bash_finds_it_installed_for_the_next_shell(tmp_path):
    bash = shutil.which("bash")
    if bash is None or shutil.which("trimtab", path=BIN) is None:
        pytest.skip("there is no bash here, or trimtab is not installed as a program")
    script = "trimtab --install-completion\n. ~/.bashrc\ncomplete -p trimtab\n"
    done = run(bash, "--norc", "-c", script, cwd=tmp_path, PATH=PATH)
    assert done.out.strip().endswith("-F _trimtab_completion trimtab"), done.err
