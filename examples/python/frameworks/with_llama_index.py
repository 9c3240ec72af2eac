"""A code agent of LlamaIndex whose code runs in a sandbox. The model is scripted."""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import CodeActAgent
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen
from llama_index.core.llms import CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback

import brig
from brig.integrations.llama_index import code_execute_fn


class Scripted(CustomLLM):
    """Gives the answers that are written down."""

    answers: list[str]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=self.answers.pop(0))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponseGen:
        text = self.answers.pop(0)
        yield CompletionResponse(text=text, delta=text)


async def main() -> None:
    answers = [
        "<execute>\nnumbers = [n * n for n in range(5)]\n</execute>",
        "<execute>\nprint(sum(numbers))\n</execute>",
        "The sum of the squares is 30.",
    ]
    async with brig.AsyncSandbox(timeout=20, memory="256MiB") as box:
        agent: Any = CodeActAgent(code_execute_fn=code_execute_fn(box), llm=Scripted(answers=answers))
        response = await agent.run("What is the sum of the squares below five?")
    outputs = [one.tool_output.raw_output["stdout"] for one in response.tool_calls]
    print(outputs, response)
    assert outputs == ["", "30\n"]


asyncio.run(main())
