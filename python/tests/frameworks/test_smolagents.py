"""The executor of smolagents."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import PIL.Image
import pytest
from smolagents import ChatMessage, CodeAgent, MessageRole, Model, tool
from smolagents.utils import AgentError

import brig
from brig.integrations._answers import decode
from brig.integrations.smolagents import BrigExecutor


class Scripted(Model):
    """A model whose answers are written down."""

    def __init__(self, *codes: str) -> None:
        super().__init__()
        self._codes = iter(codes)

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{next(self._codes)}\n</code>")


CELLS = (
    ("import math\nfrom dataclasses import dataclass\nfactor = 2", None),
    (
        """
@dataclass
class Point:
    x: int
    y: int = 1

    def scaled(self):
        return Point(self.x * factor, self.y * factor)

def area(r):
    return math.floor(math.pi * r * r) + factor

counter = lambda: factor
point = Point(3)
pair = [point, point]
""",
        None,
    ),
    ("factor = 10\narea(1), counter()", [13, 10]),
    ("(area(1), point.scaled().x)", [13, 30]),
    ("pair[0] is pair[1] is point and isinstance(point, Point)", True),
    ("text = '''two\nlines''' ; text  # a comment", "two\nlines"),
    ("{1: 'int'};", "{1: 'int'}"),
    ("from __future__ import annotations\n1, *[2, 3]", "(1, 2, 3)"),
    ("print('only printed')", None),
    ("del factor", None),
    ("'factor' in globals(), 'c' in globals(), 'sys' in globals()", "(False, False, False)"),
    ("sys = 'mine'; c = 'too'", None),
    ("sys + c", "minetoo"),
)


def test_variables_are_kept_from_cell_to_cell() -> None:
    with BrigExecutor(backend="native") as executor:
        for code, value in CELLS:
            output = executor(code).output
            same = [value, repr(tuple(value))] if isinstance(value, list) else [value]
            assert output in same, code


def test_what_can_not_be_kept_is_said() -> None:
    with BrigExecutor(backend="native") as executor:
        logs = executor("lines = (n for n in range(3)); kept = 1").logs
        assert "`lines` can't be kept" in logs
        assert executor("kept").output == 1
        with pytest.raises(AgentError, match="NameError.*lines"):
            executor("lines")


def test_an_error_keeps_what_was_done_before_it() -> None:
    with BrigExecutor(backend="native", timeout=20) as executor:
        with pytest.raises(AgentError, match="ZeroDivisionError"):
            executor("done = 'yes'\n1 / 0")
        assert executor("done").output == "yes"
        with pytest.raises(AgentError, match="SyntaxError"):
            executor("no program")
        with pytest.raises(AgentError, match="longer than"):
            executor("done = 'no'\nimport time; time.sleep(600)")
        assert executor("done").output == "yes"


def test_variables_are_part_of_checkpoints() -> None:
    with brig.Sandbox(backend="native") as box:
        box.checkpoints.save("empty")
        executor = BrigExecutor(box)
        executor("step = 1")
        box.checkpoints.save("one")
        executor("step = 2")
        box.restore("one")
        assert executor("step").output == 1
        box.restore("empty")
        assert executor("'step' in globals()").output is False


def test_the_policy_decides_on_each_cell() -> None:
    rule = {
        "name": "no-sockets",
        "condition": {"field": "code", "operator": "contains", "value": "import socket"},
        "action": "deny",
        "message": "no sockets",
    }
    with BrigExecutor(backend="native", policy={"rules": [rule], "defaults": {"action": "allow"}}) as executor:
        executor("a = 1")
        with pytest.raises(AgentError, match="no sockets"):
            executor("import socket")
        assert executor("a").output == 1


def test_code_can_not_choose_what_the_host_unpickles() -> None:
    with BrigExecutor(backend="native") as executor:
        attack = """
class FinalAnswerException(BaseException):
    pass
raise FinalAnswerException('pickle:gASVAAAA')
"""
        with pytest.raises(Exception, match="[Pp]ickle data rejected"):
            executor(attack)
        # Nor what it takes for the answer of another cell, or for one.
        executor("import json, atexit, os")
        forged = "open('brig_cells/answer.json', 'w').write('[' * 100000); os._exit(0)"
        assert executor(forged).output is None
        link = "os.remove('brig_cells/answer.json'); os.symlink('/etc/passwd', 'brig_cells/answer.json'); os._exit(0)"
        assert executor(link).output is None
        assert executor("6 * 7").output == 42


ANSWER: dict[str, Any] = {"value": {"json": "7"}, "error": None, "lost": ["gone"]}


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, True),
        ({"value": {"json": "7" * 5000}}, False),
        ({"value": {"json": "[" * 100_000}}, False),
        ({"value": {"json": 7}}, False),
        ({"value": {"text": ["7"]}}, False),
        ({"value": {"json": "7", "text": "7"}}, False),
        ({"value": [7]}, False),
        ({"error": {"name": ["FinalAnswerException"], "value": "x"}}, False),
        ({"error": "x"}, False),
        ({"lost": "gone"}, False),
        ({"lost": [{}]}, False),
        ({"lost": 5}, False),
        ({"lost": ["x"] * 1001}, False),
        ({"lost": ["x" * 201]}, False),
        ({"padding": list(range(400_000))}, False),
        ({"padding": "x" * (40 << 20)}, False),
    ],
    ids=lambda given: str(given)[:40],
)
def test_an_answer_that_no_cell_wrote_is_none(change: dict[str, Any], taken: bool) -> None:
    with BrigExecutor(backend="native") as executor:
        executor("import json, os")
        executor.box.files.write("forged", json.dumps({**ANSWER, **change}))
        forge = (
            "answer = json.load(open('forged')); answer['cell'] = os.environ['CELL']\n"
            "json.dump(answer, open('brig_cells/answer.json', 'w')); os._exit(0)"
        )
        output = executor(forge)
        assert (output.output, "`gone`" in output.logs) == ((7, True) if taken else (None, False))


def test_values_and_images_may_be_long() -> None:
    with BrigExecutor(backend="native") as executor:
        executor("import random, zlib, struct, base64, json")
        assert len(executor("'x' * 2_000_000").output) < 300_000
        image = """
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
rows = b''.join(b'\\0' + random.randbytes(1500) for _ in range(1500))
png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1500, 1500, 8, 0, 0, 0, 0))
png += chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')
class FinalAnswerException(BaseException): pass
raise FinalAnswerException('safe:' + json.dumps({'__type__': 'PIL.Image', 'data': base64.b64encode(png).decode()}))
"""
        assert executor(image.replace("\\\\", "\\")).output.size == (1500, 1500)


def _png(width: int, height: int) -> str:
    data = io.BytesIO()
    PIL.Image.new("1", (width, height)).save(data, format="PNG")
    return base64.b64encode(data.getvalue()).decode()


def _typed(kind: str, data: Any, **more: Any) -> str:
    return "safe:" + json.dumps({"__type__": kind, "data": data, **more})


def test_a_final_answer_is_plain_data() -> None:
    plain = {"a": [1, 2.5, None, True, "text"], "b": {"__type__": "bytes", "data": "AAE="}}
    nested = {**plain, "t": {"__type__": "tuple", "data": [1, [2]]}}
    assert decode("safe:" + json.dumps(nested)) == {**plain, "b": b"\0\1", "t": (1, [2])}
    image = decode(_typed("PIL.Image", _png(3, 2)))
    assert image.size == (3, 2) and image.format == "PNG"


@pytest.mark.parametrize(
    ("kind", "data", "more"),
    [
        ("set", [n * ((1 << 61) - 1) for n in range(9)], {}),
        ("frozenset", [1], {}),
        ("ndarray", [[0]], {"dtype": "V1000000000"}),
        ("Decimal", "1e999999999", {}),
        ("dataclass", {}, {"module": "os", "class_name": "system"}),
        ("dict_with_complex_keys", [[1, 2]], {}),
    ],
)
def test_other_types_of_a_final_answer_are_text(kind: str, data: Any, more: Any) -> None:
    assert decode(_typed(kind, data, **more)) == _typed(kind, data, **more).removeprefix("safe:")
    assert decode(f"safe:[{_typed(kind, data, **more).removeprefix('safe:')}]") == [
        _typed(kind, data, **more).removeprefix("safe:")
    ]


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\n(x) print\n%%EOF\n"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (_typed("PIL.Image", base64.b64encode(EPS).decode()), "not PNG"),
        (_typed("PIL.Image", base64.b64encode(b"\x89PNG\r\n\x1a\n" + EPS).decode()), "not PNG"),
        (_typed("PIL.Image", _png(3, 2)[:60]), "can't be read"),
        (_typed("PIL.Image", _png(4097, 4096)), "too many pixels"),
        (_typed("PIL.Image", 5), "not PNG"),
        ("safe:" + "[" * 100 + "]" * 100, "too deep"),
        ("safe:" + "[" * 100_000 + "]" * 100_000, "too deep"),
        ("safe:" + json.dumps("x" * (1 << 20)), "longer"),
        ("safe:" + json.dumps({"__type__": "tuple", "kind": "PIL.Image", "data": ["x" * (1 << 20)]}), "longer"),
        (_typed("PIL.Image", "A" * (24 << 20)), "too large"),
        (_typed("bytes", "not base64"), "base64"),
        ("safe:no json", "Expecting"),
        ("safe:" + "9" * 10_000, "digits"),
        ("pickle:gASVAAAA", "pickle"),
        ("gASVAAAA", "format"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_a_final_answer_that_is_too_much_is_an_error(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(given)


def test_code_can_not_have_the_host_open_an_image_that_is_a_program() -> None:
    attack = "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException({!r})"
    with BrigExecutor(backend="native") as executor:
        with pytest.raises(AgentError, match="not PNG"):
            executor(attack.format(_typed("PIL.Image", base64.b64encode(EPS).decode())))
        output = executor(attack.format(_typed("PIL.Image", _png(3, 2))))
        assert output.is_final_answer and output.output.size == (3, 2)


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: the number
    """
    return number * 2


def test_an_agent_with_tools_inside_and_outside() -> None:
    called: list[str] = []

    def lookup(name: str) -> int:
        """Looks something up, in this process."""
        called.append(name)
        return 20

    box = brig.Sandbox(backend="native", tools=[lookup])
    with box:
        model = Scripted("found = lookup('x') + 1", "answer = double(found)", "final_answer({'is': answer})")
        agent = CodeAgent(tools=[double], model=model, executor=BrigExecutor(box), verbosity_level=0)
        assert agent.run("work", max_steps=4) == {"is": 42}
        agent.cleanup()
        assert called == ["x"]
        assert box.run("print('still open')").ok
