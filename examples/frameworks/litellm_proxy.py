"""LiteLLM's proxy: requests of its clients fit the window, and the clients keep their own lists.

A callback of the proxy hides what does not fit. LiteLLM's configuration names it: `callbacks:
litellm_proxy.handler`. The client's key and the `litellm_session_id` that it sends name a
conversation; requests without this id pass unchanged. A callback cannot send a refused request
again, but the next request knows the window that the refusal names. This program runs the proxy and
a client.

Needs: pip install 'trimtab[testing]' 'litellm[proxy]'
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import openai
from litellm.integrations.custom_logger import CustomLogger

from trimtab.integrations.conversations import Conversations
from trimtab.testing import serve_simulated_provider


class Trimtab(CustomLogger):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        # The tools are the client's: nobody here could answer a call of `recall`.
        self.conversations = Conversations(recall=False, **options)
        self.open_calls: dict[str, str] = {}

    async def async_pre_call_hook(
        self,
        user_api_key_dict: Any,
        cache: Any,  # noqa: ARG002 - LiteLLM's signature
        data: dict[str, Any],
        call_type: Any,
    ) -> dict[str, Any] | None:
        name = self.name_of(user_api_key_dict, data)
        if name is None or str(getattr(call_type, "value", call_type)) != "acompletion":
            return None
        messages = data["messages"]
        view = await self.conversations.fit(
            name,
            messages,
            model=data["model"],
            dialect="openai_chat",
            tools=data.get("tools") or (),
            max_output_tokens=data.get("max_tokens"),
        )
        self.open_calls[name] = data["litellm_call_id"]
        if not view.is_unchanged:
            # The system prompt is not listed in the view.
            system = takewhile(lambda message: message["role"] == "system", messages)
            data["messages"] = [*system, *chain.from_iterable(shown.wire for shown in view)]
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> None:
        """A whole reply, before the client gets it."""
        await self.add_reply(self.name_of(user_api_key_dict, data), data, response)

    async def async_log_success_event(
        self,
        kwargs: dict[str, Any],
        response_obj: Any,
        start_time: Any,  # noqa: ARG002 - LiteLLM's signature
        end_time: Any,  # noqa: ARG002 - LiteLLM's signature
    ) -> None:
        """A reply that was streamed, after its end."""
        data = kwargs["litellm_params"].get("proxy_server_request", {}).get("body", {})
        key = (kwargs["litellm_params"].get("metadata") or {}).get("user_api_key")
        if data.get("stream") and (session := data.get("litellm_session_id")):
            await self.add_reply(f"{key}/{session}", kwargs, response_obj)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,  # noqa: ARG002 - LiteLLM's signature
    ) -> None:
        name = self.name_of(user_api_key_dict, request_data)
        if name in self.open_calls:
            await self.conversations.retry(name, original_exception)

    async def add_reply(self, name: str | None, data: dict[str, Any], reply: Any) -> None:
        # If the client is faster with its next request, the reply is in its list.
        if name is None or self.open_calls.get(name) != data["litellm_call_id"]:
            return
        del self.open_calls[name]
        await self.conversations.add_reply(name, reply.model_dump(exclude_none=True))

    @staticmethod
    def name_of(key: Any, data: dict[str, Any]) -> str | None:
        session = data.get("litellm_session_id")
        return f"{key.api_key}/{session}" if session else None


window = os.environ.get("TRIMTAB_WINDOW")
handler = Trimtab(context_window=int(window) if window else None)

KEY = "sk-any"
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
FUNCTION = {"name": "read_report", "description": "Read a report.", "parameters": SCHEMA}


def read_report(number: int) -> str:
    return "".join(f"{number}.{line}: {line * number % 977} bar\n" for line in range(150))


def call(number: int) -> dict[str, Any]:
    return {"name": "read_report", "arguments": {"number": number}}


def run_client(url: str) -> int:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
    messages: list[Any] = [{"role": "system", "content": "You read reports."}]
    for turn in range(20):
        messages.append({"role": "user", "content": f"Read three reports. This is turn {turn}."})
        while True:
            reply = client.chat.completions.create(
                model="gpt-4o",
                messages=messages,
                max_tokens=1_000,
                tools=[{"type": "function", "function": FUNCTION}],
                extra_body={"litellm_session_id": "chat-7"},
            )
            answer = reply.choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                break
            for each in answer.tool_calls:
                number = json.loads(each.function.arguments)["number"]
                result = {"tool_call_id": each.id, "content": read_report(number)}
                messages.append({"role": "tool", **result})
    return len(messages)


def main() -> None:
    with serve_simulated_provider(window=16_000) as server, tempfile.TemporaryDirectory() as folder:
        steps = [{"calls": [call(1), call(2)]}, {"calls": [call(3)]}, {"text": 20}]
        server.simulator.script.set_replies(steps, repeat=True)
        model = {"model": "openai/gpt-4o", "api_base": server.openai_url, "api_key": "any"}
        config = {
            "model_list": [{"model_name": "gpt-4o", "litellm_params": model}],
            "general_settings": {"master_key": KEY},
            "litellm_settings": {"num_retries": 0, "callbacks": "litellm_proxy.handler"},
        }
        path = Path(folder) / "config.yaml"
        path.write_text(json.dumps(config))
        shutil.copy(__file__, Path(folder) / "litellm_proxy.py")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        environ = {**os.environ, "TRIMTAB_WINDOW": "16000", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(path)]
        command += ["--host", "127.0.0.1", "--port", port]
        proxy = subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603 - LiteLLM's own
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(f"{url}/health/liveliness")
            kept = run_client(url)
        finally:
            proxy.terminate()
            proxy.wait()
        stats = server.simulator.stats()
        calls, refused = stats["requests"], stats["refused"]
        assert kept == 1 + 20 * 7
        print(f"20 turns, {calls} calls, {refused} refused; the client keeps all {kept} messages")


def wait_for(url: str) -> None:
    for _ in range(240):
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310 - our own server
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise TimeoutError(f"nothing answers at {url}")


if __name__ == "__main__":
    main()
