//! What the policy crate does with bytes from anywhere. Used by the fuzz targets and, with mutated
//! policies, by an ordinary test of the `policy` crate.

use brig_code_scan::scan_python;
use brig_policy::{Cases, Compat, Document, Map, PolicySet, Problem, eval_line};

/// Loads the bytes as a policy. Whether they are one.
pub(super) fn load(file: &str, bytes: &[u8], compat: Compat) -> bool {
    let loaded = match Document::load(file, bytes, compat) {
        Ok(loaded) => loaded,
        Err(problems) => {
            assert!(problems.errors().count() > 0, "refused without a reason");
            let no_fix =
                |problem: &&Problem| problem.fix.is_none() && problem.code != "policy.more";
            assert_eq!(
                problems.errors().find(no_fix),
                None,
                "refused without a fix"
            );
            return false;
        }
    };
    let document = loaded.document;
    let context: Map = [("code", "abcabc"), ("tool_name", "x")]
        .into_iter()
        .collect();
    let policies = PolicySet::new(vec![document.clone()]);
    let answer = policies.evaluate(&context);
    assert_eq!(policies.explain(&context).answer, answer);
    // What was accepted can be written down, and means the same.
    let again = Document::load("p.json", document.canonical(), Compat::Agt);
    let again = again.unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(again.document.digest(), document.digest());
    true
}

/// Everything else that reads bytes.
pub(super) fn read(bytes: &[u8]) {
    drop(Cases::load("c.yaml", bytes));
    drop(Cases::load("c.json", bytes));
    drop(eval_line(&String::from_utf8_lossy(bytes)));
    drop(scan_python(bytes));
}
