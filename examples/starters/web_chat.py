"""A chat in the browser: a page, a chat for each visitor, answers that survive a restart.

Needs: pip install 'trimtab[anthropic]' fastapi uvicorn, and ANTHROPIC_API_KEY

    uvicorn web_chat:app
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import uuid4

from fastapi import Cookie, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, Field

from trimtab import Session, run_turn
from trimtab.errors import CannotFit, ProviderError, SessionBusy
from trimtab.providers import AnthropicProvider, with_retries
from trimtab.stores import Store, open_store

MODEL = "claude-sonnet-5-5"
SYSTEM = "Be friendly and brief."
STATUS: dict[type[Exception], int] = {SessionBusy: 409, ProviderError: 502, CannotFit: 413}
PAGE = """<!doctype html><meta charset=utf-8><title>Chat</title>
<style>body { font: 1rem/1.5 system-ui; max-width: 40rem; margin: 2rem auto; padding: 0 1rem }
p { white-space: pre-wrap } .user { font-weight: 600 } input { width: 100%; font: inherit }</style>
<main></main><form><input placeholder="Say something" autofocus></form>
<script>
const show = (role, text) => { const line = document.createElement("p");
  line.className = role; line.textContent = text; document.querySelector("main").append(line); };
fetch("messages").then(reply => reply.json()).then(all => all.forEach(m => show(m.role, m.text)));
document.querySelector("form").onsubmit = async event => {
  event.preventDefault();
  const field = event.target[0], text = field.value, id = crypto.randomUUID();
  field.value = ""; show("user", text);
  const reply = await fetch("messages", { method: "POST", body: JSON.stringify({ id, text }),
    headers: { "content-type": "application/json" } });
  const answer = await reply.json(); show("assistant", answer.text || answer.detail);
};
</script>"""


class Post(BaseModel):
    """What the page sends. A second post with the same id gets the same answer."""

    id: str = Field(min_length=1, max_length=100)
    text: str = Field(min_length=1, max_length=20_000)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Keep one provider and one store for all visitors. CHATS may be a PostgreSQL database."""
    app.state.provider = with_retries(AnthropicProvider())
    async with await open_store(os.environ.get("CHATS", "chats")) as app.state.store:
        yield
    await app.state.provider.close()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(SessionBusy)
@app.exception_handler(ProviderError)
@app.exception_handler(CannotFit)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    """Answer with the reason."""
    return JSONResponse({"detail": str(error)}, STATUS[type(error)])


Chat = Annotated[str, Cookie(alias="chat", pattern="^[0-9a-f]{32}$")]
"""The visitor's chat. The cookie is its only secret: add a login before you publish it."""


async def open_chat(chat: str) -> Session:
    """Open a visitor's chat, or begin it."""
    store: Store = app.state.store
    return await Session.open_or_create(store, chat, model=MODEL, system=SYSTEM, recall=True)


@app.get("/", response_class=HTMLResponse)
async def page(request: Request, response: Response) -> str:
    """Return the page, and give a new visitor a chat."""
    if "chat" not in request.cookies:
        response.set_cookie("chat", uuid4().hex, httponly=True, samesite="strict")
    return PAGE


@app.get("/messages")
async def history(chat: Chat) -> list[dict[str, str]]:
    """Return what was said."""
    async with await open_chat(chat) as session:
        logged = [entry.message async for entry in session.messages()]
    return [{"role": message.role, "text": message.text} for message in logged if message.text]


@app.post("/messages")
async def answer(chat: Chat, post: Post) -> dict[str, str]:
    """Answer a message. One that comes while another is answered waits for its turn."""
    message = {"role": "user", "content": post.text}
    provider = app.state.provider
    async with await open_chat(chat) as session:
        finished = await run_turn(session, provider, message=message, key=post.id, wait=60)
    return {"text": finished.text}
