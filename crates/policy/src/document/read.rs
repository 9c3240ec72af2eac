//! A document out of a tree, with everything that is wrong in it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::fields::{self, CONTROLS, FACTS};
use super::host::{host, warn};
use super::typed::{Object, Reader};
use super::{Condition, Defaults, Document, Given, Limits, Mounts, Operator, Rule, Verdict};
use crate::command::{CommandMode, CommandRule};
use crate::pattern::Pattern;
use crate::problem::{Entry, Fault, Log, Position, nearest, quoted};
use crate::tree::{Compat, Node};
use crate::value::Value;

/// For all patterns of a document together, counted with every repetition written out.
const MAX_PATTERNS: u64 = 1_000_000;

pub(super) fn document(node: &Node, compat: Compat, log: &mut Log) -> Option<Document> {
    let mut reader = Reader { log, compat };
    let root = Entry::Root;
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

fn rules(reader: &mut Reader<'_>, object: &Object<'_>, root: &Entry<'_>) -> Vec<Rule> {
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
                "policy.duplicate-rule",
                format!(
                    "a rule named {} is on line {} already",
                    quoted(&rule.name),
                    first.line
                ),
            )
            .fix("give each rule a name of its own: it is what decisions are known by");
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
    entry: &Entry<'_>,
    budget: &mut u64,
) -> Option<Rule> {
    let name = reader.text(object, "name", entry);
    let condition = reader
        .child(object, "condition", entry)
        .and_then(|inner| condition(reader, &inner, &entry.key("condition"), budget));
    let action = reader.choice(object, "action", entry);
    let priority = reader.integer(object, "priority", entry);
    let message = reader.text(object, "message", entry);
    let overrides = reader.flag(object, "override", entry);
    Some(Rule {
        at: object.at,
        name: name?.value,
        condition: condition?,
        action: verdict(action?.value),
        priority: priority.map_or(0, |priority| priority.value),
        message: message.map(|message| message.value).unwrap_or_default(),
        overrides: overrides.unwrap_or(false),
    })
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
    entry: &Entry<'_>,
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
        && let Some(meant) = nearest(&field.value, FACTS.iter().copied())
    {
        let fault = Fault::new(
            "policy.field",
            format!(
                "{} is no fact that Brig knows; unless the caller adds it, the rule never matches",
                quoted(&field.value)
            ),
        )
        .fix(format!("did you mean `{meant}`?"));
        reader.log.warning(field_at, &field_entry, fault);
    }
    if ["host", "port"].contains(&&*field.value) {
        let fault = Fault::new(
            "policy.field",
            format!(
                "{} is known only where the caller adds it; connections are not decided by rules",
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
        Operator::In | Operator::NotIn => "give a list, or text in which a part is looked for",
        _ => "give a number, text or a list",
    };
    (!fits).then(|| {
        Fault::new(
            "policy.operator",
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
    entry: &Entry<'_>,
    budget: &mut u64,
) -> Result<Arc<Pattern>, String> {
    let text = value.to_text();
    if !matches!(value, Value::Text(_)) {
        let fault = Fault::new(
            "policy.type",
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
    let problem = Fault::new("policy.pattern", format!("bad pattern {}: {fault}", quoted(&text)))
        .fix("patterns are those of Python's `re` module; a literal `.`, `(` or `[` needs a `\\` before it");
    match reader.compat {
        Compat::Strict => reader.log.error(at, entry, problem),
        Compat::Agt => reader.log.warning(at, entry, problem),
    }
    Err(fault)
}

fn defaults(reader: &mut Reader<'_>, object: &Object<'_>, root: &Entry<'_>) -> (Defaults, Limits) {
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
            "policy.open-default",
            "`action` is missing: what no rule matches is allowed, as by AGT 4",
        )
        .fix("write `action: deny` or `action: allow`");
        reader.log.warning(at, &entry, fault);
    }
    (defaults, limits)
}

/// A limit that is not part of AGT's documents may stand in `defaults`, or beside it.
fn either_place(
    reader: &mut Reader<'_>,
    object: &Object<'_>,
    inner: Option<&Object<'_>>,
    root: &Entry<'_>,
    name: &'static str,
) -> Option<Given<i64>> {
    let entry = root.key("defaults");
    let outer = reader.integer(object, name, root);
    let Some(inner) = inner else { return outer };
    let both = object.has(name) && inner.has(name);
    let inner = reader.integer(inner, name, &entry);
    if both && let Some(Given { at: Some(at), .. }) = &inner {
        let fault = Fault::new(
            "policy.duplicate-key",
            format!("`{name}` is given beside `defaults` too"),
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

fn mounts(reader: &mut Reader<'_>, object: &Object<'_>, root: &Entry<'_>) -> Mounts {
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
            Fault::new("policy.empty", format!("an empty {what} name")).fix("remove the entry")
        );
    }
    if name.contains(',') {
        return Err(
            Fault::new("policy.name", format!("{} is several in one", quoted(name)))
                .fix("write one entry for each"),
        );
    }
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err(Fault::new(
            "policy.name",
            format!(
                "{} holds spaces around it or control characters",
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
        "policy.control",
        format!("there is no control {}", quoted(name)),
    );
    Err(match nearest(name, CONTROLS.iter().copied()) {
        Some(meant) => fault.fix(format!("did you mean `{meant}`?")),
        None => fault.fix(format!("known controls are {}", CONTROLS.join(", "))),
    })
}
