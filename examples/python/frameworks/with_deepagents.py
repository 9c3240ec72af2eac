"""An agent of Deep Agents whose shell and files are in a sandbox. The model is scripted."""

from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage

import brig
from brig.integrations.deepagents import BrigBackend


class Scripted(FakeMessagesListChatModel):
    """Gives the answers that are written down."""

    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        return self


def call(number: int, tool: str, **arguments: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": f"call-{number}"}])


PROGRAM = "print(sum(range(10)))\n"
POLICY = {
    "rules": [
        {
            "name": "no-passwords",
            "condition": {"field": "code", "operator": "contains", "value": "/etc/passwd"},
            "action": "deny",
            "message": "user accounts are none of your business",
        }
    ],
    "defaults": {"action": "allow"},
}

model = Scripted(
    responses=[
        call(1, "write_file", file_path="/workspace/sum.py", content=PROGRAM),
        call(2, "execute", command="python3 sum.py"),
        call(3, "execute", command="cat /etc/passwd"),
        AIMessage("It is 45."),
    ]
)

with brig.Sandbox(timeout=20, policy=POLICY) as box:
    agent: Any = create_deep_agent(model, backend=BrigBackend(box))
    answer = agent.invoke({"messages": [("user", "What is the sum of the numbers below ten?")]})
    said = [str(one.content) for one in answer["messages"] if isinstance(one, ToolMessage)]
    print(*said, answer["messages"][-1].content, sep="\n")
    assert "45" in said[1] and "none of your business" in said[2]
    assert box.files.read_text("sum.py") == PROGRAM
