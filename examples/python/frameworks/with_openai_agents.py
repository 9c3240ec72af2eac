"""A sandbox agent of the OpenAI Agents SDK: its workspace is a sandbox. The model is scripted."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse, RunConfig, Runner, Usage
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.sandbox.manifest import Manifest
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from brig.integrations.openai_agents import BrigSandboxClient


class Scripted(Model):
    """Counts the lines of a file, and says what came out."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        output: ResponseFunctionToolCall | ResponseOutputMessage
        if isinstance(input, list) and input[-1].get("type") == "function_call_output":
            text = ResponseOutputText(type="output_text", text=str(input[-1]["output"]), annotations=[])
            output = ResponseOutputMessage(
                id="message", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            arguments = json.dumps({"cmd": "wc -l < notes.txt"})
            output = ResponseFunctionToolCall(
                type="function_call", name="exec_command", call_id="call-1", arguments=arguments
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main() -> None:
    client = BrigSandboxClient(timeout=20, memory="256MiB")
    manifest = Manifest(entries={"notes.txt": File(content=b"one\ntwo\nthree\n")})
    agent = SandboxAgent(name="counter", model=Scripted(), capabilities=[Shell()], default_manifest=manifest)
    config = RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
    result = await Runner.run(agent, "How many notes are there?", run_config=config)
    print(result.final_output)
    assert "3" in str(result.final_output).split()


asyncio.run(main())
