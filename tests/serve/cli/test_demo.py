"""The demo from end to end: the simulator in a process of its own, the real SDK, real tools."""

import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import warm
from tests.cli.running import TRIMTAB, environ, trimtab

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
SENTENCES = (
    r"(\d+) calls sent ([\d,]+) tokens; with the whole conversation they would have sent ([\d,]+) "
    r"\(\d+% less\)\.\n"
    r"They cost \$0\.\d{3}; with the whole conversation, a larger window and an always warm cache "
    r"they would have cost \$0\.\d{3} \(\d+% (?:less|more)\): cached tokens are cheap, so the "
    r"cost falls less than the tokens\.\n"
    r"([\d,]+) tokens are hidden, by (\d+) edits, and none of them is lost"
    r"(?:; the agent looked up (m\d+\.\d+) when it was asked)?\.\n"
    r"The provider refused (\d+) requests; with the whole conversation, (\d+) of \d+ requests "
    r"would have exceeded the window of ([\d,]+) tokens\.\n"
    r"Next: trimtab init creates your own agent\.\n"
)


def until(holds, process):
    """Wait for a condition, for a minute at most."""
    end = time.monotonic() + 60
    while not holds():
        assert process.poll() is None
        assert time.monotonic() < end
        select.select([], [], [], 0.05)


def simulators(parent):
    """Simulators that a process has started."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "cmdline").read_bytes()
            status = (place / "status").read_text(encoding="utf-8")
        except OSError:
            continue  # it has just ended
        if b"trimtab.testing.server" in told and f"PPid:\t{parent}\n" in status:
            found.append(int(place.name))
    return found


def seen(out):
    found = re.search(SENTENCES, out)
    assert found, out
    return [number and number.replace(",", "") for number in found.groups()]


def test_it_shows_a_long_conversation_that_fits_and_what_was_recalled(tmp_path):
    began = time.monotonic()
    done = trimtab("demo", "--fast", "--svg", "last.svg", cwd=tmp_path, COLUMNS="100", LINES="34")
    assert done.code == 0, done.err
    assert done.err == ""
    # About five seconds on an idle machine.
    assert time.monotonic() - began < 60
    calls, sent, whole, hidden, _, handle, refused, too_large, window = seen(done.out)
    told = " ".join((ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split())
    for figure in (f"{calls} calls", f"{int(sent):,} tokens", f"{int(whole):,}"):
        assert figure in told
    for cost in re.findall(r"\$0\.\d{3}", done.out[done.out.index("They cost") :]):
        assert cost in told
    assert int(calls) >= 25
    assert int(sent) < int(whole) / 3
    assert int(hidden) > 2 * int(window)
    assert (refused, handle is not None) == ("0", True)
    assert int(too_large) > int(calls) / 2
    for words in ("Commit 9f3c2ab", f'recall {{"handle":"{handle}"', "Tool output", "window", "★"):
        assert words in done.out
    picture = (tmp_path / "last.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "Commit&#160;9f3c2ab" in picture


@pytest.mark.soak
def test_it_fits_under_another_policy_and_in_a_smaller_window(tmp_path):
    done = trimtab("demo", "--fast", "--policy", "rolling", "--window", "9k", cwd=tmp_path)
    assert done.code == 0, done.err
    assert seen(done.out)[6] == "0"


def test_in_a_window_that_holds_everything_nothing_is_hidden_and_nothing_recalled(tmp_path):
    done = trimtab("demo", "--fast", "--policy", "full", "--window", "200k", cwd=tmp_path)
    calls, sent, whole, hidden, _, handle, refused, too_large, _ = seen(done.out)
    assert (sent, hidden, handle, refused, too_large) == (whole, "0", None, "0", "0"), calls


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle_it_leaves_no_process_and_no_file_behind(number, tmp_path):
    known = environ(tmp_path, TMPDIR=str(tmp_path))
    command = [*TRIMTAB, "demo"]
    with warm.Popen(
        command,
        env=known,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        until(lambda: any(tmp_path.glob("trimtab-demo-*/demo*")), process)
        started = simulators(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert len(started) == 1
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(f"/proc/{number}").exists() for number in started)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "none"], "unknown policy 'none'; choose from"),
        (
            ["--window", "2k"],
            "a window of 2,000 tokens is too small for the demo; use 8k or more",
        ),
        (["--window", "large"], "invalid number of tokens 'large': write 200k or 200000"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(options, why, tmp_path):
    done = trimtab("demo", *options, cwd=tmp_path)
    assert (done.code, done.err.startswith(f"trimtab: {why}")) == (2, True)
