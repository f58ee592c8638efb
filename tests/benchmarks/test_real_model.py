"""What stands around the real model, without it: the scripted calls, the server's log, the skip."""

import sys

from benchmarks import llama_server, real_model
from benchmarks.llama_server import Running, Seen
from benchmarks.peers.envs import VARIABLE, Absent
from trimtab.dialects import get_dialect

CALL = {"id": "call_1_0", "name": "read_file", "arguments": {"path": "1_0.py"}}


def test_a_scripted_call_reads_the_same_streamed_and_whole():
    chat = get_dialect("openai_chat")
    gathering = chat.create_reply_accumulator()
    for event in real_model.scripted(CALL, stream=True):
        gathering.feed(event)
    streamed = gathering.reply_body()
    (whole,) = real_model.scripted(CALL, stream=False)
    assert streamed is not None
    one, other = chat.parse_reply(streamed).message, chat.parse_reply(whole).message
    assert [(call.id, call.name, call.arguments) for call in one.calls] == [
        ("call_1_0", "read_file", '{"path": "1_0.py"}')
    ]
    assert [call.arguments for call in other.calls] == [call.arguments for call in one.calls]


def test_the_log_is_read_by_whole_lines_and_none_of_them_twice(tmp_path):
    log = tmp_path / "log"
    server = Running("http://127.0.0.1:1/v1", log)
    log.write_text(
        "load time = 1 ms\n"
        "Llama.generate: 12 prefix-match hit, remaining 30 prompt tokens to eval\n"
        "Llama.generate: 40 prefix-match hit, rem"
    )
    assert server.seen() == [Seen(cached=12, fresh=30)]
    assert server.seen() == []
    with log.open("a") as out:
        out.write("aining 2 prompt tokens to eval\n")
    (last,) = server.seen()
    assert last.tokens == 42


def test_without_its_server_it_is_skipped_and_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["real_model.py", "--quick", "--if-built"])
    assert real_model.start() == 0
    said = capsys.readouterr().out
    assert said == (
        "skipped: the inference server is not built; python -m benchmarks.real_model builds it\n"
    )


def test_a_server_that_cannot_be_built_is_a_skip_with_its_reason(monkeypatch, capsys):
    def build():
        raise Absent("could not be installed: no compiler")

    monkeypatch.setattr(llama_server, "build", build)
    monkeypatch.setattr(sys, "argv", ["real_model.py", "--quick"])
    assert real_model.start() == 0
    said = capsys.readouterr().out
    assert said == "skipped: the inference server: could not be installed: no compiler\n"


def test_half_of_a_build_is_no_server(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    where = llama_server.envs.path_of(llama_server.SERVER)
    where.mkdir(parents=True)
    (where / "versions.json").write_text("{}")
    assert not llama_server.there()
