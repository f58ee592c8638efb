"""Mistakes with keys, models and providers."""

from __future__ import annotations

from tests.mistakes.mistake import AGENT, CLAUDE, NOBODY, SIMULATOR, Mistake

HOSTED = CLAUDE.replace("  base_url: SIMULATOR\n", "")
"""The same agent at the provider's own address."""
BARE = "session:\n  recall: false\n"
"""Without tools of ours, whose texts would count."""
HELLO = 'trimtab chat "hello"'


def local(model: str, more: str) -> str:
    return f"name: helper\nmodel:\n  name: {model}\n{more}system: You are a helper.\n"


ASKING = (
    Mistake(
        name="no-key",
        what="No key is set.",
        types=HELLO,
        files={"agent.yaml": HOSTED},
        key=None,
        status=2,
        names=["ANTHROPIC_API_KEY"],
    ),
    Mistake(
        name="no-key-doctor",
        what="No key is set, and the doctor is asked.",
        types="trimtab doctor",
        files={"agent.yaml": HOSTED},
        key=None,
        status=1,
        names=["ANTHROPIC_API_KEY"],
    ),
    Mistake(
        name="wrong-key",
        what="The key is not one that the provider knows.",
        types=HELLO,
        files={"agent.yaml": CLAUDE},
        key=None,
        environ={"ANTHROPIC_API_KEY": "sk-ant-api03-mistyped-0123456789abcdef"},
        status=1,
        names=["HTTP 401", "ANTHROPIC_API_KEY"],
    ),
    Mistake(
        name="key-of-another-provider",
        what="There is a key for OpenAI, and the model is Anthropic's.",
        types=HELLO,
        files={"agent.yaml": HOSTED},
        status=2,
        names=["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
    ),
    Mistake(
        name="unknown-model",
        what="The provider has no model of that name.",
        types=HELLO,
        files={"agent.yaml": CLAUDE.replace("claude-sonnet-4-6", "claude-opus-9")},
        key="ANTHROPIC_API_KEY",
        says=[{"fault": "not_found"}],
        status=1,
        names=["claude-opus-9", "HTTP 404"],
    ),
    Mistake(
        name="model-with-a-typo",
        what="The model's name is misspelt, and the doctor is asked.",
        types="trimtab doctor",
        files={"agent.yaml": CLAUDE.replace("claude-sonnet-4-6", "claude-sonet-4-6")},
        key="ANTHROPIC_API_KEY",
        says=[{"fault": "not_found"}] * 2,
        status=1,
        names=["claude-sonet-4-6", "claude-sonnet-4-6"],
    ),
    Mistake(
        name="nobody-serves-the-model",
        what="An open model is named, and nobody who serves it.",
        types=HELLO,
        files={"agent.yaml": local("qwen3-8b", "")},
        status=2,
        names=["qwen3-8b", "provider"],
    ),
    Mistake(
        name="ollama-not-running",
        what="The model is to be asked from an Ollama that was not started.",
        types=HELLO,
        files={"agent.yaml": local('"qwen3:8b"', "  provider: ollama\n  base_url: NOBODY/v1\n")},
        key=None,
        status=1,
        names=[f"{NOBODY}/v1", "ollama serve"],
    ),
    Mistake(
        name="provider-down",
        what="Nobody listens at the provider's address.",
        types=HELLO,
        files={"agent.yaml": AGENT.replace("SIMULATOR", "NOBODY")},
        status=1,
        names=[NOBODY],
    ),
    Mistake(
        name="base-url-with-a-wrong-path",
        what="The path of base_url is not the API's.",
        types=HELLO,
        files={"agent.yaml": local("gpt-5", "  base_url: SIMULATOR/api/v2\n")},
        status=1,
        names=[f"{SIMULATOR}/api/v2", "HTTP 404"],
    ),
    Mistake(
        name="rate-limited",
        what="More was asked than the account allows.",
        types=HELLO,
        says=[{"fault": "rate_limit", "retry_after": 0.1}] * 5,
        status=1,
        names=["HTTP 429"],
    ),
    Mistake(
        name="overloaded",
        what="The provider is overloaded for longer than is waited.",
        types=HELLO,
        files={"agent.yaml": CLAUDE},
        key="ANTHROPIC_API_KEY",
        says=[{"fault": "overloaded", "retry_after": 0.1}] * 5,
        status=1,
        names=["HTTP 529"],
    ),
    Mistake(
        name="window-too-small-for-the-system-prompt",
        what="The window is set smaller than the system prompt.",
        types=HELLO,
        files={
            "agent.yaml": AGENT.replace(
                "  base_url: SIMULATOR/v1\n",
                "  base_url: SIMULATOR/v1\n  context_window: 1000\n  max_output_tokens: 200\n",
            ).replace("You are a helper.", "system.md")
            + BARE,
            "system.md": "Be careful, and say what you do before you do it. " * 200,
        },
        status=1,
        names=["1,000", "system"],
    ),
    Mistake(
        name="message-larger-than-the-window",
        what="A whole book is asked about at once.",
        types='trimtab chat "Read this:" < book.txt',
        says=["It is long."],
        files={
            "agent.yaml": AGENT.replace(
                "  base_url: SIMULATOR/v1\n",
                "  base_url: SIMULATOR/v1\n  context_window: 4000\n  max_output_tokens: 500\n",
            )
            + BARE,
            "book.txt": "It was the best of times, it was the worst of times. " * 500,
        },
        status=0,
        names=["4,000"],
    ),
    Mistake(
        name="nothing-asked",
        what="Nothing is asked, and there is no terminal.",
        types="trimtab chat",
        status=2,
        names=["question"],
    ),
)
