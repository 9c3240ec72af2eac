//! Whatever the bytes are, loading ends, without a panic, in a policy or in problems.

#[path = "../../../../fuzz/policy.rs"]
mod policy;

use brig_policy::Compat;

/// The same numbers on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (end.max(1) as u64)).unwrap_or(0)
    }
}

const PIECES: &[&str] = &[
    "rules:",
    "- ",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    ": ",
    ", ",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "!x ",
    "|",
    ">",
    "'",
    "\"",
    "#",
    "---",
    "?",
    "null",
    "true",
    "yes",
    "0x1f",
    "1e3",
    "-1",
    "2024-01-01",
    "\\u0041",
    "\\ud800",
    "\u{feff}",
    "\0",
    "\t",
    "é",
    "😀",
    "condition",
    "operator",
    "matches",
    "value",
    "(a|b)*",
    "(?P<n>x)(?P=n)",
    "[z-a]",
    "\\",
    "99999999999999999999",
    "network_allowlist",
    "pypi.org",
    "*",
    "env",
    "waive",
    "defaults",
    "max_cpu",
    "~",
    "%YAML 1.1\n",
    "%TAG ! x\n",
];

fn mutate(random: &mut Random, seed: &str) -> Vec<u8> {
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if !bytes.is_empty() => {
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= 1 << random.below(8);
            }
            1 => {
                let end = (at + random.below(20)).min(bytes.len());
                bytes.drain(at..end);
            }
            2 => {
                let end = (at + random.below(40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            3 => bytes.truncate(at),
            _ => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    bytes
}

#[test]
fn a_hundred_thousand_broken_policies_do_no_harm() {
    let yaml = include_str!("../../../../examples/policies/research.yaml");
    let cases = include_str!("../../../../examples/policies/research.cases.yaml");
    let short = "name: x\nrules:\n  - name: r\n    condition: {field: code, operator: matches, value: 'a(b|c)*'}\n    action: deny\n";
    let json = r#"{"name": "x", "rules": [{"name": "r", "condition": {"field": "code", "operator": "in", "value": [1, "a"]}, "action": "deny"}]}"#;
    let line = r#"{"id": 1, "policies": [{"rules": []}], "context": {"code": "abc", "n": 1.5}}"#;
    let mut random = Random(0x0b51_9b51_9b51_9b51);
    let (mut valid, mut refused) = (0, 0);
    for round in 0..100_000 {
        let (file, seed) = match round % 8 {
            0 => ("p.yaml", yaml),
            1 | 2 => ("p.json", json),
            3 => ("other", cases),
            4 => ("other", line),
            _ => ("p.yaml", short),
        };
        let bytes = mutate(&mut random, seed);
        let compat = if round % 16 < 8 {
            Compat::Strict
        } else {
            Compat::Agt
        };
        match file {
            "other" => policy::read(&bytes),
            file if policy::load(file, &bytes, compat) => valid += 1,
            _ => refused += 1,
        }
    }
    assert!(
        valid > 1_000 && refused > 1_000,
        "{valid} valid, {refused} refused"
    );
}
