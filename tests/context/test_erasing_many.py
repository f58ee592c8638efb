"""Many messages are erased at the price of one fold."""

from __future__ import annotations

from tests import pictures
from trimtab import Context
from trimtab.engine.window.window import Window


def long_talk(messages):
    context = Context(model="gpt-4o", policy="full", context_window=10_000_000)
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        context.add({"role": role, "content": f"secret_{number:04} " * 5})
    return context


def folded(context):
    """What a window tells that must not depend on how it came about."""
    window = context.window
    said = [(entry.seq, entry.message) for entry in window.entries.values()]
    return (
        said,
        window.tokens,
        window.bytes,
        window.base.erased_ranges,
        window.accounting.prefix_version,
        window.seq,
    )


def test_a_range_is_erased_in_one_fold(monkeypatch):
    context = long_talk(300)
    folds = []
    refold = Window._refold
    monkeypatch.setattr(Window, "_refold", lambda self: (folds.append(1), refold(self)))
    context.erase("m2-m151")
    assert len(folds) == 1
    log = "\n".join(context.dump())
    assert all(f"secret_{number:04}" not in log for number in range(150))
    assert all(f"secret_{number:04}" in log for number in range(150, 300))


def test_erasing_many_at_once_is_erasing_one_by_one():
    at_once, one_by_one = long_talk(40), long_talk(40)
    at_once.erase("m2-m21")
    for seq in range(2, 22):
        one_by_one.erase(f"m{seq}")
    assert folded(at_once) == folded(one_by_one)


def test_a_log_with_many_erasures_folds_to_the_same_window():
    context = long_talk(60)
    context.erase("m2-m31")
    context.add({"role": "user", "content": "and then?"})
    context.erase("m40-m44")
    assert folded(Context.load(context.dump())) == folded(context)
    again = Window(context.window.counters_by_name)
    for event in context.events:
        again.apply(event)
    assert again.tokens == context.window.tokens
    assert again.accounting.prefix_version == context.window.accounting.prefix_version


def test_a_picture_that_is_erased_leaves_what_usage_taught_as_it_was():
    context = Context(model="gpt-4o", policy="full")
    picture = {"url": f"data:image/png;base64,{pictures.text(pictures.png(1024, 768))}"}
    shown = context.add(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this? " * 200},
                {"type": "image_url", "image_url": picture},
            ],
        }
    )
    context.request()
    # Heavier than text of that length can be: the picture is what was dear.
    context.add(
        {
            "object": "chat.completion",
            "choices": [{"message": {"role": "assistant", "content": "A cat."}}],
            "usage": {"prompt_tokens": 4_000, "completion_tokens": 3},
        }
    )
    context.erase(shown)
    context.add({"role": "user", "content": "Go on. " * 500})
    loaded = Context.load(context.dump())
    assert loaded.report().to_dict() == context.report().to_dict()
    assert context.preview().request == context.request()
    assert loaded.request() == context.request()
