"""A code agent of smolagents: each step runs in a sandbox, with the variables of those before. The model is scripted."""

from typing import Any

from smolagents import ChatMessage, CodeAgent, MessageRole, Model  # type: ignore[import-untyped]

import brig
from brig.integrations.smolagents import BrigExecutor

STEPS = iter(
    (
        "prices = {name: price(name) for name in ('apple', 'pear')}\nprices",
        "import socket\nsocket.create_connection(('192.0.2.1', 443), timeout=5)",
        "final_answer(sum(prices.values()))",
    )
)


class Scripted(Model):  # type: ignore[misc]
    """Gives the answers that are written down."""

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{next(STEPS)}\n</code>")


def price(item: str) -> float:
    """The price of an item. Runs in this program, not in the sandbox."""
    return {"apple": 0.5, "pear": 0.75}[item]


with brig.Sandbox(timeout=20, tools=[price]) as box:
    agent = CodeAgent(tools=[], model=Scripted(), executor=BrigExecutor(box), verbosity_level=0)
    answer = agent.run("What do an apple and a pear cost?", max_steps=4)
    print(answer)
    assert answer == 1.25
    # The second step failed: there is no network.
    second = agent.memory.steps[2]
    print(str(getattr(second, "error")).splitlines()[-1])
