//! Policies as they are stored with a session, so that they apply even if their files change.

use std::sync::Arc;

use brig_schema::{ProblemLog, parse_unlimited};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::document::Document;
use crate::set::PolicySet;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPolicies {
    digest: String,
    /// The path that policies of directories were merged for.
    #[serde(rename = "folder")]
    directory: Option<String>,
    /// In their canonical form.
    documents: Vec<String>,
}

impl Serialize for PolicySet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StoredPolicies {
            digest: self.digest().to_string(),
            directory: self.directory().map(Into::into),
            documents: (self.documents().iter())
                .map(|document| document.canonical())
                .collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PolicySet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = StoredPolicies::deserialize(deserializer)?;
        let mut documents: Vec<Arc<Document>> = Vec::new();
        for text in stored.documents {
            let mut log = ProblemLog::new("policy.json");
            let node = parse_unlimited(&text, &mut log);
            let loaded = Document::from_stored(node.as_ref(), log);
            documents.push(loaded.map_err(D::Error::custom)?.document);
        }
        let policies = match &stored.directory {
            None => Some(Self::new(documents)),
            Some(path) => Self::in_directory(&documents, path),
        };
        policies
            .filter(|policies| policies.digest().to_string() == stored.digest)
            .ok_or_else(|| D::Error::custom("the policies do not match the recorded digest"))
    }
}

#[cfg(test)]
mod tests {
    use brig_schema::Compat;

    use super::*;

    fn document(text: &str) -> Arc<Document> {
        let loaded = Document::load("p.yaml", text, Compat::Agt);
        loaded
            .unwrap_or_else(|problems| panic!("{problems}"))
            .document
    }

    const RULE: &str =
        "rules:\n  - {name: r, action: deny, condition: {field: x, operator: gt, value: 1.5}}\n";

    #[test]
    fn what_was_kept_comes_back_the_same() {
        let (one, two) = (document(RULE), document("name: two\nscope: 'a/*'\n"));
        let flat = PolicySet::new(vec![one.clone(), two.clone()]);
        let directory = PolicySet::in_directory(&[one, two], "a/b").expect("in scope");
        assert_ne!(flat.digest(), directory.digest());
        for policies in [flat, directory] {
            let text = serde_json::to_string(&policies).expect("plain data");
            let again: PolicySet = serde_json::from_str(&text).expect("as it was");
            assert_eq!(again, policies);
            let context = [("x", 2)].into_iter().collect();
            assert_eq!(again.evaluate(&context), policies.evaluate(&context));
        }
    }

    #[test]
    fn the_largest_policies_come_back_too() {
        // Written out, each rule is longer than the alias that it was given with.
        let again = "  - *r\n".repeat(15_000);
        let rule = "&r {name: r, action: deny, condition: {field: x, operator: eq, value: 1}}";
        let policies = PolicySet::new(vec![document(&format!("rules:\n  - {rule}\n{again}"))]);
        let text = serde_json::to_string(&policies).expect("plain data");
        assert!(text.len() > crate::MAX_BYTES);
        let back: PolicySet = serde_json::from_str(&text).expect("as it was");
        assert_eq!(back, policies);
    }

    #[test]
    fn what_was_changed_meanwhile_is_refused() {
        let text =
            serde_json::to_string(&PolicySet::new(vec![document(RULE)])).expect("plain data");
        let changed = text.replace("deny", "allow");
        assert_ne!(text, changed);
        let error = serde_json::from_str::<PolicySet>(&changed).expect_err("changed");
        assert!(error.to_string().contains("digest"), "{error}");
    }
}
