"""A call that is hostile or broken reads nothing, changes nothing and is answered."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest

from tests.sidecar.calls import SMALL, ask, chat, fit, fit_from_start
from trimtab.sidecar.call import MAX_ID_BYTES
from trimtab.sidecar.sidecar import Sidecar
from trimtab.sidecar.stdio import serve_stdio

PATHS = ("../a", "..", "a/../../b", "\x00", "C:\\a", "~root", "a" * MAX_ID_BYTES)


@pytest.mark.parametrize("name", PATHS)
def test_an_id_names_nothing_outside_the_store(tmp_path: Path, name: str):
    sidecar = Sidecar(tmp_path / "store")
    assert fit_from_start(sidecar, 1, conversation=name)["managed"]
    sidecar.run(sidecar.close())
    assert [each.name for each in tmp_path.iterdir()] == ["store"]
    for path in (tmp_path / "store").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.mark.parametrize("name", ["a" * (MAX_ID_BYTES + 1), "", 7, None, ["a"]])
def test_an_id_that_is_none_or_too_long_is_refused(name: object):
    answer = ask(Sidecar(), "fit", conversation=name, body=chat(1), options=SMALL)
    assert answer["status"] == 400


BROKEN = (b"", b"[]", b"7", b"{", b"nonsense", b"\xff", b'{"body": NaN}', b"[" * 100_000, b"{}{}")


@pytest.mark.parametrize("line", BROKEN, ids=[*range(len(BROKEN))])
def test_what_is_not_a_call_is_refused(line: bytes):
    sidecar, answers = Sidecar(), io.BytesIO()
    sidecar.run(serve_stdio(sidecar, io.BytesIO(line + b"\n"), answers))
    assert json.loads(answers.getvalue())["status"] == 400


def test_keys_and_headers_in_a_body_are_not_stored(tmp_path: Path):
    sidecar = Sidecar(tmp_path)
    secrets = {"api_key": "sk-private", "extra_headers": {"x-api-key": "sk-private"}}
    answer = fit(sidecar, chat(12, **secrets, authorization="sk-private"))
    assert answer["body"]["api_key"] == "sk-private"
    sidecar.run(sidecar.close())
    assert not any(b"sk-private" in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
