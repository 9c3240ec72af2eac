//! The examples are valid, mean what their cases say, and satisfy the schema.

use std::fs;
use std::path::{Path, PathBuf};

use brig_policy::{Cases, Compat, Document, PolicySet, schema};
use serde_json::Value;

fn examples() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .expect("the examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.to_string_lossy().ends_with(".cases.yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 3);
    files
}

fn load(path: &Path) -> PolicySet {
    let text = fs::read(path).expect("readable");
    let loaded = Document::load(&path.to_string_lossy(), text, Compat::Strict);
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    PolicySet::new(vec![loaded.document])
}

#[test]
fn every_example_is_sound_and_its_cases_hold() {
    for path in examples() {
        let policies = load(&path);
        let cases = path.with_extension("cases.yaml");
        let text = fs::read(&cases).expect("every example has cases");
        let cases = Cases::load(&cases.to_string_lossy(), text).expect("valid cases");
        let results = cases.run(&policies);
        assert!(results.len() >= 3);
        for result in results {
            let name = format!("{}: {}", path.display(), result.name);
            assert!(
                result.differences.is_empty(),
                "{name}: {:?}",
                result.differences
            );
        }
    }
}

#[test]
fn every_example_satisfies_the_schema() {
    let schema: Value = serde_json::from_str(&schema()).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for path in examples() {
        let policies = load(&path);
        let whole = policies.documents()[0].effective();
        let whole = serde_json::to_value(whole).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&whole)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
    let refused = [
        r#"{"rulse": []}"#,
        r#"{"defaults": {"action": "alow"}}"#,
        r#"{"defaults": {"max_memory_mb": 0}}"#,
        r#"{"network_allowlist": ["a, b"]}"#,
        r#"{"network_allowlist": ["*"]}"#,
        r#"{"tool_allowlist": [""]}"#,
        r#"{"command_denylist": ["bin/az login"]}"#,
        r#"{"command_denylist": ["a, b"]}"#,
        r#"{"command_mode": "off"}"#,
        r#"{"rules": [{"name": "x", "action": "deny"}]}"#,
        r#"{"env": {"1A": "x"}}"#,
        r#"{"waive": ["everything"]}"#,
        r#"{"version": 1}"#,
    ];
    for text in refused {
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert!(!validator.is_valid(&value), "{text}");
        assert!(
            Document::load("p.json", text, Compat::Strict).is_err(),
            "{text}"
        );
    }
}
