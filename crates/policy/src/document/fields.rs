//! Every field of a policy, once: what it may contain, what it means, and its default. The reader,
//! the JSON Schema and the reference page are made from these tables.

use brig_schema::{Field, FieldKind};

use crate::command::CommandMode;

/// A list of host rules. See `brig_hosts` for the syntax.
pub const HOSTS: FieldKind = FieldKind::List {
    items: "hosts",
    pattern: r"^(\*\.)?[^\s,*@]+(:\*)?$",
};

const TOOLS: FieldKind = FieldKind::List {
    items: "names",
    pattern: r"^[^\s,]([^,]*[^\s,])?$",
};

const COMMANDS: FieldKind = FieldKind::List {
    items: "programs",
    pattern: r"^(/[^\s,]*)?[^\s,/]+( [^\s,]+)*$",
};

pub(crate) const ACTIONS: &[&str] = &["allow", "deny", "audit", "block", "require_approval"];

pub(crate) const OPERATORS: &[&str] = &[
    "eq", "ne", "gt", "lt", "gte", "lte", "in", "not_in", "matches", "contains",
];

/// Controls that can be waived by name. A test of the sandbox checks that they are its own.
pub const CONTROLS: &[&str] = &[
    "cpu",
    "memory",
    "processes",
    "disk",
    "wall-time",
    "output-size",
    "network-off",
    "network-hosts",
    "command-deny",
    "command-allow",
    "command-arguments",
    "command-record",
    "tools",
    "read-only-root",
    "mounts",
    "checkpoint",
    "syscalls",
    "filesystem",
    "signals",
    "linux-userland",
];

pub(crate) const DOCUMENT: &[Field] = &[
    Field::new("version", FieldKind::Name, "The version of the policy, chosen by its author.").default("\"1.0\""),
    Field::new("name", FieldKind::Name, "The name of the policy, as decisions and records show it.")
        .default("\"unnamed\""),
    Field::new("description", FieldKind::Text, "What the policy is for.").default("\"\""),
    Field::new("rules", FieldKind::Objects(RULE), "The rules, evaluated from the highest priority to the lowest. The first match decides.")
        .default("[]"),
    Field::new("defaults", FieldKind::Object(DEFAULTS), "What applies when no rule matches, and the limits of every execution.")
        .default("{}"),
    Field::new("inherit", FieldKind::Flag, "In a directory policy: whether the policies of the parent directories apply too.")
        .default("true"),
    Field::new("scope", FieldKind::Name, "In a directory policy: the paths that the policy applies to, as a glob over the path below the root. `*` also matches `/`.")
        .nullable(),
    Field::new("network_allowlist", HOSTS, "Hosts that may be reached: `host`, `*.domain`, an address or a network such as `10.0.0.0/8`, each with an optional `:port` or `:*`, and `/tcp` after it for any protocol.")
        .default("[]"),
    Field::new("tool_allowlist", TOOLS, "The only tools that may be called. A policy without it allows none.").default("[]"),
    Field::new("record_tool_arguments", FieldKind::Flag, "Whether the arguments of tool calls are recorded, shortened and without values of environment variables. Without it, only their digest is.")
        .default("false"),
    Field::new("sandbox_mounts", FieldKind::Object(MOUNTS), "Host directories that are mounted in the sandbox.")
        .nullable(),
    Field::new("command_denylist", COMMANDS, "Programs that may not be run: a name, an absolute path, a program with its first arguments such as `git push` (which can only be observed), or a set such as `@network`.")
        .default("[]"),
    Field::new("command_allowlist", COMMANDS, "The only programs that may be run, written in the same ways. Left out: all but the denied.")
        .nullable(),
    Field::new("command_mode", FieldKind::Choice(CommandMode::NAMES), "Whether these lists are enforced, or their violations are only recorded.")
        .default("\"enforce\""),
    PROCESSES,
    DISK,
    OUTPUT,
    Field::new("env", FieldKind::Variables, "Environment variables of every execution.").default("{}"),
    Field::new("waive", FieldKind::Choices(CONTROLS), "Controls that may be missing, by name. Each waiver is recorded.")
        .default("[]"),
];

const PROCESSES: Field = Field::new(
    "max_processes",
    FieldKind::Integer {
        min: 1,
        max: 65_536,
    },
    "The maximum number of processes and threads.",
)
.nullable();

const DISK: Field = Field::new(
    "max_disk_mb",
    FieldKind::Integer {
        min: 1,
        max: 1 << 20,
    },
    "The maximum that may be written, in MiB.",
)
.nullable();

const OUTPUT: Field = Field::new(
    "max_output_bytes",
    FieldKind::Integer {
        min: 1,
        max: 1 << 30,
    },
    "The maximum that is kept of each of stdout and stderr, in bytes.",
)
.nullable();

/// Limits that may be next to `defaults` as well as in it.
pub(crate) const EITHER_PLACE: [&str; 3] = ["max_processes", "max_disk_mb", "max_output_bytes"];

pub(crate) const DEFAULTS: &[Field] = &[
    Field::new(
        "action",
        FieldKind::Choice(ACTIONS),
        "The answer when no rule matches.",
    )
    .default("\"deny\""),
    Field::new(
        "max_tokens",
        FieldKind::Integer {
            min: 1,
            max: i64::MAX,
        },
        "The maximum number of tokens per request. For the caller to enforce: Brig does not see \
         tokens.",
    )
    .default("4096"),
    Field::new(
        "max_tool_calls",
        FieldKind::Integer {
            min: 1,
            max: i64::MAX,
        },
        "The maximum number of tool calls of one execution.",
    )
    .default("10"),
    Field::new(
        "confidence_threshold",
        FieldKind::Number { min: 0.0, max: 1.0 },
        "The minimum confidence. For the caller to enforce.",
    )
    .default("0.8"),
    Field::new(
        "approval_timeout_seconds",
        FieldKind::Integer {
            min: 1,
            max: 86_400,
        },
        "How long an approval is waited for, in seconds. Then the answer is a denial.",
    )
    .default("300"),
    Field::new(
        "max_cpu",
        FieldKind::Number {
            min: 0.01,
            max: 1024.0,
        },
        "The maximum CPU time per second, in CPUs.",
    )
    .nullable(),
    Field::new(
        "max_memory_mb",
        FieldKind::Integer {
            min: 16,
            max: 1 << 20,
        },
        "The maximum memory, in MiB.",
    )
    .nullable(),
    Field::new(
        "timeout_seconds",
        FieldKind::Integer {
            min: 1,
            max: 86_400,
        },
        "The maximum duration of an execution, in seconds.",
    )
    .nullable(),
    PROCESSES,
    DISK,
    OUTPUT,
    Field::new(
        "network_default",
        FieldKind::Choice(&["allow", "deny"]),
        "Whether hosts that are not on `network_allowlist` may be reached.",
    )
    .default("\"deny\""),
];

pub(crate) const RULE: &[Field] = &[
    Field::new(
        "name",
        FieldKind::Name,
        "The name of the rule, as decisions and records show it.",
    )
    .required(),
    Field::new(
        "condition",
        FieldKind::Object(CONDITION),
        "When the rule matches.",
    )
    .required(),
    Field::new(
        "action",
        FieldKind::Choice(ACTIONS),
        "The answer when it does: `allow` and `audit` allow, `deny` and `block` do not. With \
         `require_approval` the operator is asked, and without an approval in time it is a denial.",
    )
    .required(),
    Field::new(
        "priority",
        FieldKind::Integer {
            min: i64::MIN,
            max: i64::MAX,
        },
        "Rules with a higher priority are evaluated first; for equal priorities, in the order of \
         the file.",
    )
    .default("0"),
    Field::new(
        "message",
        FieldKind::Text,
        "The reason that is given, instead of the name of the rule.",
    )
    .default("\"\""),
    Field::new(
        "override",
        FieldKind::Flag,
        "In a directory policy: replaces the rule of the same name in a parent directory, unless \
         that rule denies.",
    )
    .default("false"),
];

pub(crate) const CONDITION: &[Field] = &[
    Field::new("field", FieldKind::Name, "The fact that is compared. A missing or null fact never matches.").required(),
    Field::new("operator", FieldKind::Choice(OPERATORS), "How it is compared, as Python would: `in` and `contains` with lists and parts of text, `matches` with `re.search`.")
        .required(),
    Field::new("value", FieldKind::Any, "What it is compared with.").required(),
];

pub(crate) const MOUNTS: &[Field] = &[
    Field::new(
        "input_dir",
        FieldKind::Name,
        "A host directory that is mounted read-only at `/input`.",
    )
    .nullable(),
    Field::new(
        "output_dir",
        FieldKind::Name,
        "A host directory that is mounted writable at `/output`.",
    )
    .nullable(),
];

/// The facts that Brig itself puts into a context.
pub const FACTS: &[&str] = &[
    "agent_id",
    "action",
    "language",
    "code",
    "scan",
    "command",
    "argv",
    "program",
    "tool_name",
    "tool_args",
    "host",
    "port",
    "path",
];
