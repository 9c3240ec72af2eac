"""AGT's own audit chain against ours. Arguments: the brig to try, and a seed."""

import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import types
from pathlib import Path

BRIG, SEED = sys.argv[1], int(sys.argv[2])
LISTS, LONGEST, ODD = 60, 40, 300


def load():
    """AGT's module alone: its package would import all of AGT."""
    place = importlib.util.find_spec("agentmesh").submodule_search_locations[0]
    path = Path(place) / "governance" / "audit.py"
    spec = importlib.util.spec_from_file_location("agt_audit", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["agt_audit"] = module
    spec.loader.exec_module(module)
    return module


agt = load()
hashed = []


def dumps(*args, **kwargs):
    hashed.append(json.dumps(*args, **kwargs))
    return hashed[-1]


# What AGT hashes, without repeating how it makes it.
agt.json = types.SimpleNamespace(dumps=dumps)


def brig(*args, given=None, state=None, code=0):
    env = {"PATH": os.environ["PATH"], "HOME": state or "/nonexistent"}
    if state:
        env["XDG_STATE_HOME"] = env["XDG_CONFIG_HOME"] = state
    done = subprocess.run([BRIG, *args], input=given, capture_output=True, env=env)
    if code is not None:
        assert done.returncode == code, (args, done.returncode, done.stderr.decode())
    return done


def chain_of(entries):
    """What AGT makes of a list of entries, in the shape of `brig audit agt-chain`."""
    chain = agt.MerkleAuditChain()
    answer = {"canonical": [], "hashes": [], "roots_after_each_append": []}
    for given in entries:
        entry = agt.AuditEntry.model_validate(given)
        chain.add_entry(entry)
        answer["canonical"].append(hashed[-1])
        answer["hashes"].append(entry.entry_hash)
        answer["roots_after_each_append"].append(chain.get_root_hash())
    answer["proofs"] = [
        [list(step) for step in chain.get_proof(e.entry_id)] for e in chain._entries
    ]
    return answer, chain


# Receipts of real executions.

RUNS = [
    (["-c", "print(1)"], 0),
    (["-c", "pass"], 0),
    (["-c", "print('h\u00e9llo \u2603 \U0001f600 \\x7f \\u2028 \\u202e')"], 0),
    (["-c", "import sys; sys.stdout.buffer.write(bytes(range(256)))"], 0),
    (["-c", "import sys; sys.stdout.buffer.write(b'\\xed\\xa0\\x80 \\xf0\\x9f')"], 0),
    (["-c", "print('quote \" slash \\\\ / </script>'); import sys; print('e', file=sys.stderr)"], 0),
    (["-c", "print('x' * 300_000)"], 0),
    (["-c", "print('\U0001f600' * 2000)"], 0),
    (["-c", "raise SystemExit(3)"], 3),
    (["--timeout", "1s", "-c", "import time; time.sleep(60)"], None),
    (["--agent", "\u017c\u00f3\u0142w-\U0001f422", "-c", "print(2)"], None),
    (["--", "/bin/echo", "a", "", "\U0001f600"], 0),
    (["--", "/bin/true"], 0),
]


def exports():
    with tempfile.TemporaryDirectory() as state:
        for count, (args, code) in enumerate(RUNS, 1):
            brig("run", *args, state=state, code=code)
            export(brig("audit", "export", "--format", "agt", state=state).stdout, count)
        brig("audit", "verify", state=state)
        nothing = brig("audit", "export", "--format", "agt", "--agent", "nobody", state=state)
        whole = json.loads(nothing.stdout)
        assert (whole["entry_count"], whole["merkle_root"]) == (0, None), whole
    return len(RUNS)


def export(text, at_most):
    whole = json.loads(text)
    entries = whole["entries"]
    assert 0 < len(entries) == whole["entry_count"] <= at_most, whole["entry_count"]
    own = agt.AuditLog().export()
    assert set(own) <= set(whole), set(own) - set(whole)
    chain = held(entries)
    assert chain.verify_chain() == (True, None), chain.verify_chain()
    for entry, given in zip(chain._entries, entries):
        assert entry.verify_hash()
        assert set(entry.model_dump()) == set(given), set(entry.model_dump()) ^ set(given)
    made, again = chain_of([{**e, "previous_hash": "", "entry_hash": ""} for e in entries])
    assert made["hashes"] == [e["entry_hash"] for e in entries]
    assert made["roots_after_each_append"] == whole["roots_after_each_append"]
    assert made["proofs"] == whole["proofs"]
    assert whole["merkle_root"] == whole["chain_root"] == again.get_root_hash()
    for given, proof in zip(entries, whole["proofs"]):
        verify = lambda hash: again.verify_proof(hash, proof, whole["merkle_root"])
        assert verify(given["entry_hash"])
        assert not verify("0" * 64), "a proof must not hold for anything"
    # AGT sees what it claims to see, so that it saying yes means something.
    for name in ["entry_id", "event_type", "agent_did", "action", "resource", "outcome"]:
        assert_caught(entries, name, f"{entries[-1][name]}x")
    assert_caught(entries, "data", {**entries[-1]["data"], "intent": "other"})
    assert_caught(entries, "previous_hash", "0" * 64)
    if len(entries) > 1:
        assert not held(entries[1:]).verify_chain()[0]
        assert not held(entries[::-1]).verify_chain()[0]


def held(entries):
    chain = agt.MerkleAuditChain()
    chain._entries = [agt.AuditEntry.model_validate(e) for e in entries]
    return chain


def assert_caught(entries, name, value):
    changed = [*entries[:-1], {**entries[-1], name: value}]
    assert not held(changed).verify_chain()[0], name


# Entries of many shapes.

TEXTS = [
    "", " ", "a", "Z", "9", "h\u00e9llo", "\u2603", "\U0001f600", "\uffff\U00010000", "\x00\x1f\x7f\x80\x9f",
    "quote\"\\/\b\f\n\r\t", "\u2028\u2029", "\ufeff", "e\u0301", "</script>", "x" * 5000, "null", "1.0",
]
NUMBERS = [
    0, -0.0, 0.0, 1.0, -1, 1e-07, 1e16, 1e22, 1e23, 123456789012345680.0, 5e-324, 1.7976931348623157e308,
    0.1, 1 / 3, 2**53, 2**53 + 1, -(2**63), 2**64, 10**60, 1e15, 1e17, 0.0001, 0.00001,
    float("nan"), float("inf"), float("-inf"), True, False, None,
]
TIMES = [
    "2026-05-12T02:00:03+02:00", "2026-05-12T00:00:00Z", "2026-05-12T00:00:00.000001Z", "2026-05-12 00:00",
    "2026-05-12T23:59:59.999999-11:30", "2026-05-12", "1999-12-31T23:59:59.5", "2026-05-12t01:02:03z",
    "2024-02-29T12:00:00+0530", 0, 1, -1, 1700000000, 1700000000123, 1700000000.25, "1700000000", "1700000000.5",
]


class Shapes:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self):
        r = self.random
        if r.random() < 0.5:
            return r.choice(TEXTS)
        top = 0x10FFFF if r.random() < 0.3 else 0x2FF
        points = [r.randrange(top + 1) for _ in range(r.randrange(12))]
        return "".join(map(chr, points))

    def number(self):
        r = self.random
        match r.randrange(4):
            case 0:
                return r.choice(NUMBERS)
            case 1:
                return struct.unpack("d", r.randbytes(8))[0]
            case 2:
                return round(r.uniform(-1e6, 1e6), r.randrange(8))
            case _:
                return r.randrange(-(10 ** r.randrange(1, 40)), 10**40)

    def value(self, depth=0):
        r = self.random
        kind = r.randrange(6 if depth < 5 else 4)
        if kind == 4:
            return [self.value(depth + 1) for _ in range(r.randrange(4))]
        if kind == 5:
            return {self.text(): self.value(depth + 1) for _ in range(r.randrange(5))}
        return self.text() if kind < 2 else self.number()

    def entry(self):
        r = self.random
        entry = {
            "entry_id": f"audit_{r.randrange(30) if r.random() < 0.1 else r.getrandbits(64):016x}",
            "timestamp": r.choice(TIMES),
            "event_type": self.text(),
            "agent_did": self.text(),
            "action": self.text(),
        }
        more = {
            "data": lambda: {self.text(): self.value() for _ in range(r.randrange(6))},
            "resource": lambda: r.choice([None, self.text()]),
            "outcome": self.text,
            "policy_decision": self.text,
            "matched_rule": self.text,
            "session_id": self.text,
            "unknown": self.value,
        }
        entry.update({k: make() for k, make in more.items() if r.random() < 0.6})
        if r.random() < 0.1:
            entry["data"] = {"large": [self.text() * 20 for _ in range(50)]}
        return entry

    def odd(self):
        """One that AGT may refuse."""
        r = self.random
        entry = self.entry()
        match r.randrange(4):
            case 0:
                entry["timestamp"] = self.time()
            case 1:
                entry.pop(r.choice(list(entry)))
                # Without these, every answer is another.
                entry.setdefault("entry_id", "audit_0")
                entry.setdefault("timestamp", 0)
            case 2:
                entry[r.choice(list(entry))] = self.value()
            case _:
                entry[r.choice(["issued_at", "completed_at"])] = self.time()
        return entry

    def time(self):
        """A point in time with a few letters changed."""
        r = self.random
        if r.random() < 0.2:
            return self.number()
        letters = list(str(r.choice(TIMES)))
        for _ in range(r.randrange(3)):
            place = r.randrange(len(letters))
            letters[place] = r.choice(["", " ", *"0123456789:-+.,TtZz_eE"])
        return "".join(letters)


def compare(entries):
    """Whether AGT takes the entries; then we give its answer, and else none."""
    text = json.dumps(entries)
    try:
        expected, _ = chain_of(json.loads(text))
    except (ValueError, TypeError) as refused:
        expected = refused
    ours = brig("audit", "agt-chain", "-", given=text.encode(), code=None)
    if isinstance(expected, Exception):
        assert ours.returncode != 0, (text, expected, ours.stdout.decode())
        return False
    assert ours.returncode == 0, (text, ours.stderr.decode())
    found = json.loads(ours.stdout)
    for name, value in expected.items():
        assert found[name] == value, (name, text, found[name], value)
    assert set(found) == set(expected)
    return True


def shapes():
    make = Shapes(SEED)
    for count in range(LISTS):
        assert compare([make.entry() for _ in range(count % LONGEST)])
    taken = sum(compare([make.odd()]) for _ in range(ODD))
    assert 0 < taken < ODD, taken
    return LISTS + ODD


print(f"AGT verifies {exports()} exports, and agrees on {shapes()} lists of entries")
