"""What is kept of an output, and how it is shown."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_serve.agent.tools.output import HeadTailBuffer, keep_head_and_tail


def kept(*chunks: bytes, limit: int = 1_000) -> HeadTailBuffer:
    made = HeadTailBuffer(limit)
    for chunk in chunks:
        made.add(chunk)
    return made


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 60))
def test_head_and_tail_are_those_of_the_whole_however_it_came(chunks, limit):
    whole, found = b"".join(chunks), kept(*chunks, limit=limit)
    half = limit // 2
    assert found.total_bytes == len(whole)
    assert found.head == whole[:half]
    assert found.tail == whole[half:][-half:]
    assert found.omitted_bytes == max(0, len(whole) - 2 * half)


@given(st.integers(1, 5_000))
def test_no_more_than_three_halves_of_the_limit_are_held_for_the_tail(size):
    made = HeadTailBuffer(100)
    for _ in range(50):
        made.add(b"x" * size)
        assert len(made._head) + len(made._tail) <= 50 + 100


def test_what_is_left_out_is_counted_between_head_and_tail():
    found = kept(b"first line\n", b"x" * 100_000, b"\nlast line", limit=60)
    assert found.to_text() == (
        f"first line\n{'x' * 19}\n[… 99,961 bytes left out …]\n{'x' * 20}\nlast line"
    )


@given(st.integers(20, 40))
def test_characters_are_not_cut_in_two(limit):
    found = kept("äöü€".encode() * 100, limit=limit).to_text()
    assert "\ufffd" not in found
    assert set(found.replace("\n", "")) <= set("äöü€[… 0123456789,bytes left out…]")


def test_text_in_another_encoding_is_shown_as_far_as_it_goes():
    said = "für alle Fälle, immer wieder"
    assert kept(said.encode("latin-1")).to_text() == "f\ufffdr alle F\ufffdlle, immer wieder"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "it seems to be a PNG image"),
        (gzip.compress(b"text", mtime=0), "it seems to be gzip data"),
        (b"\x7fELF\x02\x01", "it seems to be an ELF program"),
        ("plain text".encode("utf-16"), "it seems to be UTF-16 text"),
        (bytes(range(256)) * 4, "of an unknown kind"),
        (b"\0" * 500, "of an unknown kind"),
    ],
)
def test_binary_output_is_described_and_not_shown(data, kind):
    assert (
        kept(data, limit=10_000).to_text()
        == f"[binary output, {len(data):,} bytes, {kind}: not shown]"
    )


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x07link\x1b]8;;\x07", "red and link"),
        (b"\x1b]0;title\x1b\\rest \x1b(B\x1b=ok", "rest ok"),
        (b" 10%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        (b"100%\r", "100%"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"N\x08NA\x08AM\x08M", "NAM"),
        (b"a bell rings\x07 and a whistle blows\x01", "a bell rings and a whistle blows"),
        (b"some/path/a.txt\0some/path/b.txt\0", "some/path/a.txt\nsome/path/b.txt\n"),
        ("tab\tand ünïcode ✓".encode(), "tab\tand ünïcode ✓"),
        (b"", ""),
    ],
)
def test_text_is_shown_as_a_terminal_would_leave_it(data, shown):
    assert kept(data).to_text() == shown


@given(st.binary(max_size=300), st.integers(2, 200))
def test_any_output_can_be_shown_and_holds_no_controls(data, limit):
    shown = kept(data, limit=limit).to_text()
    assert not any((c < " " and c not in "\n\t") or c == "\x7f" for c in shown)
    shown.encode()


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.integers(10, 300))
def test_a_text_is_cut_only_if_it_is_too_long(text, limit):
    if len(text.encode()) <= limit:
        assert keep_head_and_tail(text, limit) == text
    else:
        assert len(keep_head_and_tail(text, limit).encode()) <= limit + 120
