"""An agent of Pydantic AI whose workspace is a sandbox, and a second run that goes on in it. The model is scripted."""

import asyncio

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from brig import Options
from brig.integrations.pydantic_ai import BrigBackend, BrigWorkspace


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(str(last.content))])
    return ModelResponse(parts=[ToolCallPart("shell", {"command": "echo entry >> diary; wc -l < diary"})])


# A sandbox is found by its ref only with the options that it was made with.
options: Options = {"timeout": 20, "processes": 64}
agent = Agent(FunctionModel(scripted), capabilities=[BrigWorkspace(**options)])


@agent.tool
async def shell(ctx: RunContext[None], command: str) -> str:
    """Runs a shell command."""
    return (await ctx.workspace.run(command, shell=True)).stdout


async def main() -> None:
    first = await agent.run("Write a diary entry.")
    second = await agent.run("And one more.", message_history=first.all_messages())
    print(first.output, second.output, sep="", end="")
    assert (first.output, second.output) == ("1\n", "2\n")
    for message in second.new_messages():
        if isinstance(message, ModelResponse) and message.workspace_ref is not None:
            await BrigBackend(message.workspace_ref, **options).destroy()
            break


asyncio.run(main())
