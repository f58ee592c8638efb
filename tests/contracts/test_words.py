"""What no file of the repository may say: where it was written, or where packages came from."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FORBIDDEN = {
    "a home directory": re.compile(r"(?<![\w.*-])/(?:home|root|Users)/(?!user\b)[A-Za-z]"),
    "a local package index": re.compile(r"file:/{2,}\w"),
    "a registry's download address": re.compile(
        r"files\.pythonhosted\.org/|pypi\.org/simple|registry\.npmjs\.org/"
    ),
    "this checkout's own path": re.compile(re.escape(str(ROOT)) + r"(?!\w)"),
}
LOCKS = {"uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock", "package-lock.json"}


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607 - git is found where the user has it
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: no list of committed files")
    found: dict[str, str] = {}
    for path in committed():
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


@pytest.mark.process
@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what, texts):
    hits = [
        f"{name}: {match.group()}"
        for name, text in texts.items()
        for match in FORBIDDEN[what].finditer(text)
    ]
    assert hits == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a home directory", "see /home/" + "ann/notes"),
        ("a local package index", "file://" + "/srv/index"),
        ("a registry's download address", "https://pypi.org/" + "simple/trimtab"),
        ("this checkout's own path", f"{ROOT}/packages"),
    ],
)
def test_the_search_finds_what_it_is_for(what, text):
    assert FORBIDDEN[what].search(text)


@pytest.mark.process
def test_no_lock_file_with_addresses_is_kept(texts):
    assert [name for name in texts if Path(name).name in LOCKS] == []
