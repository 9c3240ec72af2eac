"""Policies: read, asked, explained."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from ._errors import PolicyInvalid

PolicyLike = Any
"""A `Policy`, a path, a mapping, or an object with ``model_dump``, such as AGT's ``PolicyDocument``."""

# Warnings of ``compat="agt"`` that are errors in objects: what is asked for would be ignored, or what no rule
# matches allowed, and nobody reads the warnings of a policy that a program makes.
_REFUSED = ("policy.unknown-key", "policy.open-default")


@dataclass(frozen=True)
class Decision:
    """What a policy decides on a request."""

    allowed: bool
    needs_approval: bool
    code: str
    rule: str | None
    reason: str


@dataclass(frozen=True)
class Explanation:
    """A decision, and how it came about. ``str()`` of it is for people to read.

    ``considered`` has the rules in the order in which they were tried, ``effective`` the limits and defaults,
    ``flips`` small changes that would turn the decision around.
    """

    decision: Decision
    considered: tuple[dict[str, Any], ...]
    effective: tuple[dict[str, Any], ...]
    flips: tuple[dict[str, Any], ...]
    digest: str

    def __str__(self) -> str:
        word = "allowed" if self.decision.allowed else "denied"
        if self.decision.needs_approval:
            word = "needs an approval"
        lines = [f"{word}: {self.decision.reason} ({self.decision.code})"]
        for one in self.considered:
            lines.append(f"  {one['outcome']}: rule {one['rule']!r} ({one['action']}): {one['why']}")
        for one in self.effective:
            if one["value"] is not None:
                lines.append(f"  {one['name']} = {json.dumps(one['value'])}")
        return "\n".join(lines)


class Policy:
    """A policy that was read and is valid.

    >>> import brig
    >>> policy = brig.Policy({
    ...     "rules": [{
    ...         "name": "no-subprocess",
    ...         "condition": {"field": "code", "operator": "contains", "value": "subprocess"},
    ...         "action": "deny",
    ...     }],
    ...     "defaults": {"action": "allow"},
    ... })
    >>> policy.decide(code="print(1)").allowed
    True
    >>> policy.decide(code="import subprocess").rule
    'no-subprocess'
    """

    __slots__ = ("_document",)
    _document: _native.Policy

    def __init__(self, source: PolicyLike, *, compat: Literal["brig", "agt"] | None = None) -> None:
        """Reads a path, a mapping, or an object with ``model_dump``.

        ``compat="agt"`` reads documents as AGT does, with a warning for each oddity. Objects with ``model_dump`` are
        read so too, but must state ``defaults.action``, and what nobody knows is an error in them unless it is
        None. Everything else is read strictly.
        """
        agt = compat == "agt"
        if isinstance(source, Policy):
            self._document = source._document
        elif isinstance(source, (str, os.PathLike)):
            self._document = _native.Policy.load(source, agt)
        elif isinstance(source, Mapping):
            self._document = _native.Policy.parse("policy", json.dumps(dict(source)), agt)
        elif callable(getattr(source, "model_dump", None)):
            document = source.model_dump(mode="json")
            if compat is None:
                self._document = of_object(document)._document
            else:
                self._document = _native.Policy.parse("policy", json.dumps(document), agt)
        else:
            raise TypeError(f"not a policy: {type(source).__name__}; give a path, a mapping or a Policy")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, compat: Literal["brig", "agt"] = "brig") -> Policy:
        """Reads a file. A sandbox that could change it is refused later."""
        return cls(path, compat=compat)

    @classmethod
    def parse(cls, text: str, *, name: str = "policy", compat: Literal["brig", "agt"] = "brig") -> Policy:
        """Reads YAML or JSON. ``name`` is what problems are reported for."""
        policy = cls.__new__(cls)
        policy._document = _native.Policy.parse(name, text, compat == "agt")
        return policy

    @property
    def name(self) -> str:
        """The name in the document."""
        return self._document.name

    @property
    def digest(self) -> str:
        """Over all that it means, as records show it."""
        return self._document.digest

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that it lists."""
        return tuple(self._document.tools)

    @property
    def warnings(self) -> tuple[dict[str, Any], ...]:
        """What is valid but questionable, with positions."""
        return tuple(json.loads(self._document.warnings))

    def explain(
        self,
        code: str | None = None,
        *,
        command: Sequence[str] | None = None,
        tool: str | None = None,
        language: str = "python",
        agent: str = "python",
        facts: Mapping[str, Any] | None = None,
    ) -> Explanation:
        """What it decides on code, on a command or on the call of a tool, and why. Nothing is run."""
        return explain([self], code, command, tool, language, agent, facts)

    def decide(
        self,
        code: str | None = None,
        *,
        command: Sequence[str] | None = None,
        tool: str | None = None,
        language: str = "python",
        agent: str = "python",
        facts: Mapping[str, Any] | None = None,
    ) -> Decision:
        """What it decides. Nothing is run."""
        return explain([self], code, command, tool, language, agent, facts).decision

    def __repr__(self) -> str:
        return f"Policy(name={self.name!r}, digest={self.digest!r})"


def explain(
    policies: Sequence[Policy],
    code: str | None,
    command: Sequence[str] | None,
    tool: str | None,
    language: str,
    agent: str,
    facts: Mapping[str, Any] | None,
) -> Explanation:
    """What several policies decide together."""
    if sum(given is not None for given in (code, command, tool)) > 1:
        raise TypeError("give one of code, command and tool")
    question = {
        "agent": agent,
        "code": code,
        "language": None if code is None else language,
        "command": None if command is None else list(command),
        "tool": tool,
        "facts": None if facts is None else dict(facts),
    }
    answer = json.loads(_native.explain([one._document for one in policies], json.dumps(question)))
    return Explanation(
        Decision(**answer["decision"]),
        tuple(answer["considered"]),
        tuple(answer["effective"]),
        tuple(answer["flips"]),
        answer["digest"],
    )


def of_object(document: Mapping[str, Any]) -> Policy:
    """The policy that an object was: read as AGT does, but everything in it counts."""
    policy = Policy(_stated(document), compat="agt")
    problems = [one for one in policy.warnings if one["code"] in _REFUSED]
    if problems:
        error = PolicyInvalid("a policy that is an object is invalid; nothing was run", code="policy.invalid")
        error.problems = [{**one, "severity": "error"} for one in problems]
        raise error
    return policy


def _stated(document: Any) -> Any:
    """Without what is None: that is how models say that it is absent. A condition may compare with None."""
    if isinstance(document, Mapping):
        return {
            key: one if key == "value" else _stated(one)
            for key, one in document.items()
            if one is not None or key == "value"
        }
    if isinstance(document, (list, tuple)):
        return [_stated(one) for one in document]
    return document


def policies_of(given: PolicyLike | Sequence[PolicyLike] | None) -> list[Policy]:
    """One policy, several, or none."""
    if given is None:
        return []
    several = given if isinstance(given, (list, tuple)) else [given]
    return [Policy(one) for one in several]
