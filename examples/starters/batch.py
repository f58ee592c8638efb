"""A batch of agents: one for each line of a file, eight at a time, each with a session of its own.

Stop it and start it again: what is answered is not asked again, and nothing is paid twice.

Needs: pip install 'trimtab[anthropic]', and ANTHROPIC_API_KEY

    python batch.py questions.txt answers
"""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

from trimtab import Session, ToolError, run_turn, tool
from trimtab.errors import CannotFit, ProviderError
from trimtab.providers import AnthropicProvider, with_retries
from trimtab.stores import FileStore

AT_ONCE = 8
SYSTEM = "Answer in one line."


@tool
def read_file(path: str) -> str:
    """Read a text file below the current folder."""
    target = Path(path).resolve()
    if not target.is_relative_to(Path.cwd()):
        raise ToolError(f"{path} is outside of {Path.cwd()}")
    return target.read_text()


async def main(questions: list[str], folder: str) -> int:
    """Answer all questions, and return how many failed."""
    store, provider = FileStore(folder), with_retries(AnthropicProvider())
    slots = asyncio.Semaphore(AT_ONCE)

    async def answer(question: str) -> float | None:
        name = sha256(question.encode()).hexdigest()[:16]
        message = {"role": "user", "content": question}
        async with slots:
            session = await Session.open_or_create(
                store, name, model="claude-sonnet-5-5", system=SYSTEM, recall=True
            )
            try:
                finished = await run_turn(
                    session, provider, [read_file], message=message, key="question"
                )
            except (CannotFit, ProviderError) as error:
                print(f"{question}: failed: {error}", file=sys.stderr)
                return None
            finally:
                await session.close()
            print(f"{question}: {finished.text}")
            return session.report().cost or 0.0

    costs = await asyncio.gather(*map(answer, questions))
    await provider.close()
    failed = costs.count(None)
    total = sum(cost for cost in costs if cost is not None)
    print(f"{len(costs) - failed} answered, {failed} failed, ${total:.4f} in all")
    return failed


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    sys.exit(1 if asyncio.run(main([line for line in lines if line], sys.argv[2])) else 0)
