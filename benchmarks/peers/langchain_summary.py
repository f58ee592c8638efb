"""LangChain's `SummarizationMiddleware` with a model behind an OpenAI-shaped server.

Runs inside LangChain's own environment, standard library and the peer alone. One JSON object on
standard input: {"url", "model", "max_tokens", "conversations": [{"covered", "kept"}, …]}, messages
as Chat Completions dicts. For each a line of JSON on standard output: {"summary"} or {"error"}.

The middleware is called by its own hook and with its own prompt and limits; what it keeps is set to
the messages that are to be kept.
"""

# The peer is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any, cast

from adapters.with_langchain import Session
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

ROLES = {"human": "user", "system": "system", "ai": "assistant"}


class Served(BaseChatModel):
    url: str
    model: str
    max_tokens: int

    @property
    def _llm_type(self) -> str:
        return "served"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:  # noqa: ARG002 - LangChain's signature
        body = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "messages": [{"role": ROLES[m.type], "content": m.text} for m in messages],
        }
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.url}/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
            text = json.load(answer)["choices"][0]["message"]["content"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=text))])


def summary(model: Served, covered: list[Any], kept: list[Any]) -> str:
    session = Session()
    for index, message in enumerate([*covered, *kept]):
        session.add(index, message, 0, None)
    middleware = SummarizationMiddleware(
        model, trigger=("messages", len(kept) + 1), keep=("messages", len(kept))
    )
    state = cast("Any", {"messages": session.messages})
    made = middleware.before_model(state, cast("Any", None))
    assert made is not None
    # The first is the request to remove all others.
    return made["messages"][1].text


def main() -> None:
    asked = json.load(sys.stdin)
    model = Served(**{name: asked[name] for name in ("url", "model", "max_tokens")})
    for each in asked["conversations"]:
        try:
            told = {"summary": summary(model, each["covered"], each["kept"])}
        except urllib.error.HTTPError as error:
            told = {"error": f"{error.code} {error.read().decode('utf-8', 'replace')[:200]}"}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
