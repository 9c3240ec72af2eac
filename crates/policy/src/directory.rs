//! Policies of directories: those from the root down to a path apply together.

use std::collections::HashMap;
use std::sync::Arc;

use crate::document::{Document, Rule, Verdict};
use crate::engine::RuleIndex;

/// The names of the policy file of a directory; the first that exists counts.
pub const GOVERNANCE_FILES: [&str; 2] = ["governance.yaml", "governance.yml"];

/// Of the policies from the root down, those that are for the path, which is relative to the root.
pub(crate) fn chain(documents: &[Arc<Document>], path: &str) -> Vec<Arc<Document>> {
    // The lowest that does not inherit cuts off all above it, whether it is for the path or not.
    let first = documents
        .iter()
        .rposition(|document| !document.inherit)
        .unwrap_or(0);
    documents[first..]
        .iter()
        .filter(|document| {
            document
                .scope
                .as_deref()
                .is_none_or(|scope| matches(scope, path))
        })
        .cloned()
        .collect()
}

/// One list of rules. Of rules with one name, the highest counts, unless a lower one overrides it
/// and [`may_replace`] it.
pub(crate) fn merge(documents: &[Arc<Document>]) -> Vec<RuleIndex> {
    let all = documents
        .iter()
        .enumerate()
        .flat_map(|(document, content)| {
            (0..content.rules.len()).map(move |rule| RuleIndex { document, rule })
        });
    if documents.len() == 1 {
        return all.collect();
    }
    let rule = |place: &RuleIndex| &documents[place.document].rules[place.rule];
    let mut merged: Vec<RuleIndex> = Vec::new();
    let mut by_name: HashMap<&str, RuleIndex> = HashMap::new();
    for place in all {
        let name = rule(&place).name.as_str();
        match by_name.get(name) {
            None => merged.push(place),
            Some(above) if rule(&place).overrides && may_replace(rule(above), rule(&place)) => {
                merged.retain(|known| rule(known).name != name);
                merged.push(place);
            }
            Some(_) => continue,
        }
        by_name.insert(name, place);
    }
    merged
}

/// What denies stays, and so does what needs approval, unless the other is as strict.
fn may_replace(above: &Rule, below: &Rule) -> bool {
    match above.action {
        Verdict::Deny => false,
        Verdict::RequireApproval => !below.action.allows(),
        Verdict::Allow | Verdict::Audit | Verdict::Block => true,
    }
}

/// `fnmatch`: `*` also matches `/`.
fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let path: Vec<char> = path.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not match.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p == pattern.len() && t == path.len() {
            return true;
        }
        if pattern.get(p) == Some(&'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        if t < path.len()
            && let Some(next) = one(&pattern[p..], path[t])
        {
            (p, t) = (p + next, t + 1);
            continue;
        }
        match &mut star {
            Some((after, start)) if *start < path.len() => {
                *start += 1;
                (p, t) = (*after, *start);
            }
            _ => return false,
        }
    }
}

/// How much of the pattern the character takes; nothing if it does not match.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            // A `]` right at the start is one of the characters; without its end, `[` is itself.
            let negated = pattern.get(1) == Some(&'!');
            let start = if negated { 2 } else { 1 };
            let end = (start + 1..pattern.len()).find(|at| pattern[*at] == ']');
            let Some(end) = end else {
                return (c == '[').then_some(1);
            };
            (in_set(&pattern[start..end], c) != negated).then_some(end + 1)
        }
        literal => (*literal == c).then_some(1),
    }
}

fn in_set(set: &[char], c: char) -> bool {
    let mut at = 0;
    while at < set.len() {
        if let [low, '-', high, ..] = &set[at..] {
            if (*low..=*high).contains(&c) {
                return true;
            }
            at += 3;
        } else {
            if set[at] == c {
                return true;
            }
            at += 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_fnmatch_does() {
        // Each was answered by Python's fnmatch.
        let cases = [
            ("*", "", true),
            ("src/*", "src/a/b.py", true),
            ("src/*", "lib/a.py", false),
            ("*.py", "a/b.py", true),
            ("?.py", "a.py", true),
            ("?.py", "ab.py", false),
            ("[a-c]*", "b", true),
            ("[!a-c]*", "b", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("[a", "[a", true),
            ("a[b-]c", "a-c", true),
            ("**/x", "a/b/x", true),
            ("*a*b*c*", "xxaxxbxxc", true),
            ("*a*b*c*", "xxaxxcxxb", false),
            ("[z-a]", "m", false),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
