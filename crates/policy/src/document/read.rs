//! Reads a document from a tree, and reports everything that is wrong in it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use brig_python_semantics::{Pattern, Value};
use brig_reason::ReasonCode;
use brig_schema::{
    Compat, Fault, Given, KeyPath, Node, Object, Position, ProblemLog, Reader, nearest, quoted,
};

use super::fields::{self, CONTROLS, FACTS};
use super::host::{host, warn};
use super::{Condition, Defaults, Document, Limits, Mounts, Operator, Priority, Rule, Verdict};
use crate::command::{CommandMode, CommandRule, is_unseen};

/// For all patterns of a document together, counted with every repetition written out.
const MAX_PATTERNS: u64 = 1_000_000;

/// Keys of AGT that Brig does not have.
const KEY_FIXES: &[(&str, &str)] = &[(
    "dynamic_condition",
    "conditions on time and budget are not supported; remove it",
)];

pub(super) fn document(node: &Node, compat: Compat, log: &mut ProblemLog) -> Option<Document> {
    let mut reader = Reader::new(log, compat).key_fixes(KEY_FIXES);
    let root = KeyPath::Root;
    let object = reader.object(node, fields::DOCUMENT, &root)?;
    let rules = rules(&mut reader, &object, &root);
    let (defaults, limits) = defaults(&mut reader, &object, &root);
    let mut text = |name, default: &str| {
        (reader.text(&object, name, &root)).map_or_else(|| default.to_owned(), |text| text.value)
    };
    let (version, name) = (text("version", "1.0"), text("name", "unnamed"));
    let description = text("description", "");
    let scope = reader
        .text(&object, "scope", &root)
        .map(|scope| scope.value);
    let inherit = reader.flag(&object, "inherit", &root).unwrap_or(true);
    let hosts = reader.list(&object, "network_allowlist", &root, host);
    let hosts = hosts.unwrap_or_default();
    warn(&mut reader, &hosts, &root.key("network_allowlist"));
    let tools = reader.list(&object, "tool_allowlist", &root, tool);
    let denied = reader.list(&object, "command_denylist", &root, CommandRule::parse);
    Some(Document {
        file: reader.log.file().clone(),
        version,
        name,
        description,
        rules,
        defaults,
        limits,
        inherit,
        scope,
        network_allowlist: hosts,
        tool_allowlist: tools.unwrap_or_default(),
        record_tool_arguments: (reader.flag(&object, "record_tool_arguments", &root))
            .unwrap_or(false),
        mounts: mounts(&mut reader, &object, &root),
        command_denylist: denied.unwrap_or_default(),
        command_allowlist: reader.list(&object, "command_allowlist", &root, CommandRule::parse),
        command_mode: (reader.choice(&object, "command_mode", &root))
            .map_or_else(CommandMode::default, |mode| {
                CommandMode::from_name(mode.value)
            }),
        env: reader.variables(&object, "env", &root),
        waive: (reader.list(&object, "waive", &root, control)).unwrap_or_default(),
        digest: OnceLock::new(),
    })
}

fn rules(reader: &mut Reader<'_>, object: &Object<'_>, root: &KeyPath<'_>) -> Vec<Rule> {
    let list = root.key("rules");
    let mut rules = Vec::new();
    let mut names: HashMap<String, Position> = HashMap::new();
    let mut budget = MAX_PATTERNS;
    for (i, object) in reader
        .objects(object, "rules", root)
        .into_iter()
        .enumerate()
    {
        let Some(object) = object else { continue };
        let Some(rule) = rule(reader, &object, &list.index(i), &mut budget) else {
            continue;
        };
        if let Some(first) = names.get(&rule.name) {
            let fault = Fault::new(
                ReasonCode::PolicyDuplicateRule,
                format!(
                    "a rule named {} is on line {} already",
                    quoted(&rule.name),
                    first.line
                ),
            )
            .fix("give each rule a unique name: decisions are recorded with it");
            reader.log.warning(rule.at, &list.index(i), fault);
        } else {
            names.insert(rule.name.clone(), rule.at);
        }
        rules.push(rule);
    }
    rules
}

fn rule(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    entry: &KeyPath<'_>,
    budget: &mut u64,
) -> Option<Rule> {
    let name = reader.text(object, "name", entry);
    let condition = reader
        .child(object, "condition", entry)
        .and_then(|inner| condition(reader, &inner, &entry.key("condition"), budget));
    let action = reader.choice(object, "action", entry);
    let priority = priority(reader, object, entry);
    let message = reader.text(object, "message", entry);
    let overrides = reader.flag(object, "override", entry);
    Some(Rule {
        at: object.at,
        name: name?.value,
        condition: condition?,
        action: verdict(action?.value),
        priority: priority.unwrap_or_default(),
        message: message.map(|message| message.value).unwrap_or_default(),
        overrides: overrides.unwrap_or(false),
    })
}

/// An integer of any size for AGT: only the order counts.
fn priority(reader: &mut Reader<'_>, object: &Object<'_>, entry: &KeyPath<'_>) -> Option<Priority> {
    if reader.compat == Compat::Strict {
        let given = reader.integer(object, "priority", entry)?;
        return Some(Priority::Int(given.value));
    }
    Priority::of(reader.any_integer(object, "priority", entry)?)
}

/// AGT's policy documents have no such action: a policy with it is not one of AGT's, which refuses it.
pub(super) fn refuse_approval(document: &Document, log: &mut ProblemLog) {
    let fault = || {
        Fault::new(
            ReasonCode::PolicyChoice,
            "AGT's policy documents have no action `require_approval`",
        )
        .fix("use one of allow, deny, audit, block; or leave out `--compat agt`")
    };
    let list = KeyPath::Root.key("rules");
    for (at, rule) in document.rules.iter().enumerate() {
        if rule.action.needs_approval() {
            log.error(rule.at, &list.index(at).key("action"), fault());
        }
    }
    let default = &document.defaults.action;
    if default.value.needs_approval() {
        let at = default.at.unwrap_or(Position::START);
        log.error(at, &KeyPath::Root.key("defaults").key("action"), fault());
    }
}

fn verdict(name: &str) -> Verdict {
    let found = Verdict::ALL
        .into_iter()
        .find(|verdict| verdict.name() == name);
    found.unwrap_or_else(|| unreachable!("`{name}` is in the table of actions"))
}

fn condition(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    entry: &KeyPath<'_>,
    budget: &mut u64,
) -> Option<Condition> {
    let field = reader.text(object, "field", entry);
    let operator = reader.choice(object, "operator", entry);
    let value = reader.any(object, "value");
    let (field, operator, value) = (field?, operator?, value?);
    let operator = Operator::ALL
        .into_iter()
        .find(|known| known.name() == operator.value)?;
    let (field_entry, value_entry) = (entry.key("field"), entry.key("value"));
    let (field_at, at) = (field.at.unwrap_or(object.at), value.at.unwrap_or(object.at));
    if !FACTS.contains(&&*field.value)
        && !field.value.starts_with("tool_args.")
        && let Some(meant) = nearest(&field.value, FACTS.iter().copied())
    {
        let fault = Fault::new(
            ReasonCode::PolicyField,
            format!(
                "{} is not a fact that Brig states; unless the caller adds it, the rule never \
                 matches",
                quoted(&field.value)
            ),
        )
        .fix(format!("did you mean `{meant}`?"));
        reader.log.warning(field_at, &field_entry, fault);
    }
    if cfg!(not(feature = "code-scan")) && field.value == "scan" {
        // Without the fact, a rule that denies would never match.
        let fault = Fault::new(
            ReasonCode::PolicyField,
            "this build of Brig cannot scan code",
        )
        .fix("remove the rule, or build with the feature `code-scan`");
        reader.log.error(field_at, &field_entry, fault);
    }
    if ["host", "port"].contains(&&*field.value) {
        let fault = Fault::new(
            ReasonCode::PolicyField,
            format!(
                "{} is known only if the caller adds it; connections are not decided by rules",
                quoted(&field.value)
            ),
        )
        .fix("name the hosts that may be reached in `network_allowlist`");
        reader.log.warning(field_at, &field_entry, fault);
    }
    if let Some(fault) = unfit(operator, &value.value) {
        match reader.compat {
            Compat::Strict => reader.log.error(at, &value_entry, fault),
            Compat::Agt => reader.log.warning(at, &value_entry, fault),
        }
    }
    let pattern = (operator == Operator::Matches)
        .then(|| pattern(reader, &value.value, at, &value_entry, budget));
    Some(Condition {
        field: field.value,
        operator,
        value: value.value,
        pattern,
    })
}

/// A value with which the condition can do nothing but fail.
fn unfit(operator: Operator, value: &Value) -> Option<Fault> {
    let fits = match operator {
        Operator::In | Operator::NotIn => {
            matches!(value, Value::Text(_) | Value::List(_) | Value::Map(_))
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            !matches!(value, Value::Null | Value::Map(_))
        }
        Operator::Eq | Operator::Ne | Operator::Matches | Operator::Contains => true,
    };
    let fix = match operator {
        Operator::In | Operator::NotIn => "give a list, or text to search in",
        _ => "give a number, text or a list",
    };
    (!fits).then(|| {
        Fault::new(
            ReasonCode::PolicyOperator,
            format!(
                "`{operator}` can't be used with {}: the rule would always fail, and so deny",
                value.kind()
            ),
        )
        .fix(fix)
    })
}

fn pattern(
    reader: &mut Reader<'_>,
    value: &Value,
    at: Position,
    entry: &KeyPath<'_>,
    budget: &mut u64,
) -> Result<Arc<Pattern>, String> {
    let text = value.to_text();
    if !matches!(value, Value::Text(_)) {
        let fault = Fault::new(
            ReasonCode::PolicyType,
            format!(
                "a pattern is text, found {}; {} is used",
                value.kind(),
                quoted(&text)
            ),
        )
        .fix(format!("quote it: \"{text}\""));
        reader.log.warning(at, entry, fault);
    }
    let parsed = Pattern::parse(&text);
    let fault = match parsed {
        Ok(pattern) => match budget.checked_sub(pattern.size()) {
            Some(left) => {
                *budget = left;
                return Ok(Arc::new(pattern));
            }
            None => "all patterns of the policy together are too large".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    let problem = Fault::new(ReasonCode::PolicyPattern, format!("bad pattern {}: {fault}", quoted(&text)))
        .fix("patterns are those of Python's `re` module; a literal `.`, `(` or `[` needs a `\\` before it");
    match reader.compat {
        Compat::Strict => reader.log.error(at, entry, problem),
        Compat::Agt => reader.log.warning(at, entry, problem),
    }
    Err(fault)
}

fn defaults(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    root: &KeyPath<'_>,
) -> (Defaults, Limits) {
    let entry = root.key("defaults");
    let inner = reader.child(object, "defaults", root);
    let mut limits = Limits::default();
    let missing = match reader.compat {
        Compat::Strict => Verdict::Deny,
        Compat::Agt => Verdict::Allow,
    };
    let mut defaults = Defaults {
        action: Given::default_of(missing),
        network: Given::default_of(Verdict::Deny),
        max_tokens: Given::default_of(4096),
        max_tool_calls: Given::default_of(10),
        confidence_threshold: Given::default_of(0.8),
        approval_timeout_seconds: Given::default_of(300),
    };
    if let Some(inner) = &inner {
        let choice = |given: Given<&str>| Given {
            value: verdict(given.value),
            at: given.at,
        };
        let (reader, entry) = (&mut *reader, &entry);
        if let Some(action) = reader.choice(inner, "action", entry) {
            defaults.action = choice(action);
        }
        if let Some(network) = reader.choice(inner, "network_default", entry) {
            defaults.network = choice(network);
        }
        if let Some(given) = reader.integer(inner, "max_tokens", entry) {
            defaults.max_tokens = given;
        }
        if let Some(given) = reader.integer(inner, "max_tool_calls", entry) {
            defaults.max_tool_calls = given;
        }
        if let Some(given) = reader.number(inner, "confidence_threshold", entry) {
            defaults.confidence_threshold = given;
        }
        if let Some(given) = reader.integer(inner, "approval_timeout_seconds", entry) {
            defaults.approval_timeout_seconds = given;
        }
        limits.max_cpu = reader.number(inner, "max_cpu", entry);
        limits.max_memory_mb = positive(reader.integer(inner, "max_memory_mb", entry));
        limits.timeout_seconds = positive(reader.integer(inner, "timeout_seconds", entry));
    }
    let [processes, disk, output] = fields::EITHER_PLACE
        .map(|name| positive(either_place(reader, object, inner.as_ref(), root, name)));
    (
        limits.max_processes,
        limits.max_disk_mb,
        limits.max_output_bytes,
    ) = (processes, disk, output);
    if defaults.action.at.is_none() && reader.compat == Compat::Agt {
        let at = inner.as_ref().map_or(object.at, |inner| inner.at);
        let fault = Fault::new(
            ReasonCode::PolicyOpenDefault,
            "`action` is missing: what no rule matches is allowed, as in AGT 4",
        )
        .fix("write `action: deny` or `action: allow`");
        reader.log.warning(at, &entry, fault);
    }
    (defaults, limits)
}

/// A limit that is not part of AGT's documents may be in `defaults`, or next to it.
fn either_place(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    inner: Option<&Object<'_>>,
    root: &KeyPath<'_>,
    name: &'static str,
) -> Option<Given<i64>> {
    let entry = root.key("defaults");
    let outer = reader.integer(object, name, root);
    let Some(inner) = inner else { return outer };
    let both = object.has(name) && inner.has(name);
    let inner = reader.integer(inner, name, &entry);
    if both && let Some(Given { at: Some(at), .. }) = &inner {
        let fault = Fault::new(
            ReasonCode::PolicyDuplicateKey,
            format!("`{name}` is given both in and outside `defaults`"),
        )
        .fix("remove one of the two");
        reader.log.error(*at, &entry.key(name), fault);
    }
    inner.or(outer)
}

fn positive(given: Option<Given<i64>>) -> Option<Given<u64>> {
    let Given { value, at } = given?;
    let value = u64::try_from(value).ok()?;
    Some(Given { value, at })
}

fn mounts(reader: &mut Reader<'_>, object: &Object<'_>, root: &KeyPath<'_>) -> Mounts {
    let entry = root.key("sandbox_mounts");
    let Some(inner) = reader.child(object, "sandbox_mounts", root) else {
        return Mounts::default();
    };
    Mounts {
        input_dir: reader.text(&inner, "input_dir", &entry),
        output_dir: reader.text(&inner, "output_dir", &entry),
    }
}

fn tool(name: &str) -> Result<String, Fault> {
    plain_name("tool", name)
}

fn plain_name(what: &str, name: &str) -> Result<String, Fault> {
    if name.trim().is_empty() {
        return Err(
            Fault::new(ReasonCode::PolicyEmpty, format!("an empty {what} name"))
                .fix("remove the entry"),
        );
    }
    if name.contains(',') {
        return Err(Fault::new(
            ReasonCode::PolicyName,
            format!("{} contains more than one entry", quoted(name)),
        )
        .fix("write one entry for each"));
    }
    if name.chars().any(is_unseen) || name.trim() != name {
        return Err(Fault::new(
            ReasonCode::PolicyName,
            format!(
                "{} contains leading or trailing spaces, or characters that can't be seen",
                quoted(name)
            ),
        )
        .fix("remove them"));
    }
    Ok(name.to_owned())
}

fn control(name: &str) -> Result<String, Fault> {
    if CONTROLS.contains(&name) {
        return Ok(name.to_owned());
    }
    let fault = Fault::new(
        ReasonCode::PolicyControl,
        format!("there is no control {}", quoted(name)),
    );
    Err(match nearest(name, CONTROLS.iter().copied()) {
        Some(meant) => fault.fix(format!("did you mean `{meant}`?")),
        None => fault.fix(format!("known controls are {}", CONTROLS.join(", "))),
    })
}
