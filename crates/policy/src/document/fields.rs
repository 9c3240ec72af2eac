//! Every field of a policy, once: what it may hold, what it means, and what it is when it is
//! missing. The reader, the JSON Schema and the reference are made from these tables.

use crate::command::CommandMode;

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// May be `null`, which means the same as leaving it out.
    pub nullable: bool,
    /// As JSON.
    pub default: Option<&'static str>,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    /// Text of at least one character.
    Name,
    Flag,
    Integer {
        min: i64,
        max: i64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Choice(&'static [&'static str]),
    /// Anything that a condition can compare with.
    Any,
    Hosts,
    Tools,
    Commands,
    /// Names of controls that are given up.
    Controls,
    /// Names of variables and their values.
    Variables,
    Object(&'static [Field]),
    Objects(&'static [Field]),
    /// A map from names that people choose to maps of these fields.
    Named(&'static [Field]),
    /// A list of texts, of which there is at least one.
    Words,
    /// A path to a policy, or a policy.
    Policy,
}

pub(crate) const ACTIONS: &[&str] = &["allow", "deny", "audit", "block"];

pub(crate) const OPERATORS: &[&str] = &[
    "eq", "ne", "gt", "lt", "gte", "lte", "in", "not_in", "matches", "contains",
];

/// What can be given up by name. The sandbox checks that these are its own controls.
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
];

impl Field {
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self {
            name,
            kind,
            required: false,
            nullable: false,
            default: None,
            about,
        }
    }

    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    pub const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }
}

pub(crate) const DOCUMENT: &[Field] = &[
    Field::new("version", Kind::Name, "The version of the policy, as its author counts.").default("\"1.0\""),
    Field::new("name", Kind::Name, "The name of the policy, as decisions and records show it.")
        .default("\"unnamed\""),
    Field::new("description", Kind::Text, "What the policy is for.").default("\"\""),
    Field::new("rules", Kind::Objects(RULE), "The rules, tried from the highest priority to the lowest; the first that matches decides.")
        .default("[]"),
    Field::new("defaults", Kind::Object(DEFAULTS), "What holds when no rule matches, and the limits of every execution.")
        .default("{}"),
    Field::new("inherit", Kind::Flag, "In a folder: whether the policies of the folders above count too.")
        .default("true"),
    Field::new("scope", Kind::Name, "In a folder: the paths that the policy is for, as a glob over the path below the root, in which `*` also matches `/`.")
        .nullable(),
    Field::new("network_allowlist", Kind::Hosts, "Hosts that may be reached: `host`, `*.domain`, an address or a network such as `10.0.0.0/8`, each with an optional `:port` or `:*`.")
        .default("[]"),
    Field::new("tool_allowlist", Kind::Tools, "Tools that may be called. No others can be.").default("[]"),
    Field::new("sandbox_mounts", Kind::Object(MOUNTS), "Folders of the host that the sandbox sees.")
        .nullable(),
    Field::new("command_denylist", Kind::Commands, "Programs that may not be run: a name, an absolute path, a program with its first arguments such as `git push` (which can only be observed), or a set such as `@network`.")
        .default("[]"),
    Field::new("command_allowlist", Kind::Commands, "The only programs that may be run, written in the same ways. Left out: all but the denied.")
        .nullable(),
    Field::new("command_mode", Kind::Choice(CommandMode::NAMES), "Whether these lists are held, or what they are about is only recorded.")
        .default("\"enforce\""),
    PROCESSES,
    DISK,
    OUTPUT,
    Field::new("env", Kind::Variables, "Variables that every execution sees.").default("{}"),
    Field::new("waive", Kind::Controls, "Controls that the sandbox may do without, by name. Each waiver is recorded.")
        .default("[]"),
];

const PROCESSES: Field = Field::new(
    "max_processes",
    Kind::Integer {
        min: 1,
        max: 65_536,
    },
    "The most processes and threads at a time.",
)
.nullable();

const DISK: Field = Field::new(
    "max_disk_mb",
    Kind::Integer {
        min: 1,
        max: 1 << 20,
    },
    "The most that may be written, in MiB.",
)
.nullable();

const OUTPUT: Field = Field::new(
    "max_output_bytes",
    Kind::Integer {
        min: 1,
        max: 1 << 30,
    },
    "The most that is kept of each of stdout and stderr, in bytes.",
)
.nullable();

/// Limits that may stand beside `defaults` as well as in it.
pub(crate) const EITHER_PLACE: [&str; 3] = ["max_processes", "max_disk_mb", "max_output_bytes"];

pub(crate) const DEFAULTS: &[Field] = &[
    Field::new(
        "action",
        Kind::Choice(ACTIONS),
        "The answer when no rule matches.",
    )
    .default("\"deny\""),
    Field::new(
        "max_tokens",
        Kind::Integer {
            min: 1,
            max: i64::MAX,
        },
        "The most tokens of one request. For the caller to hold: Brig sees no tokens.",
    )
    .default("4096"),
    Field::new(
        "max_tool_calls",
        Kind::Integer {
            min: 1,
            max: i64::MAX,
        },
        "The most tool calls of one request. For the caller to hold.",
    )
    .default("10"),
    Field::new(
        "confidence_threshold",
        Kind::Number { min: 0.0, max: 1.0 },
        "The least confidence that counts. For the caller to hold.",
    )
    .default("0.8"),
    Field::new(
        "max_cpu",
        Kind::Number {
            min: 0.01,
            max: 1024.0,
        },
        "The most CPU time per second, in CPUs.",
    )
    .nullable(),
    Field::new(
        "max_memory_mb",
        Kind::Integer {
            min: 16,
            max: 1 << 20,
        },
        "The most memory, in MiB.",
    )
    .nullable(),
    Field::new(
        "timeout_seconds",
        Kind::Integer {
            min: 1,
            max: 86_400,
        },
        "The longest that an execution may take, in seconds.",
    )
    .nullable(),
    PROCESSES,
    DISK,
    OUTPUT,
    Field::new(
        "network_default",
        Kind::Choice(&["allow", "deny"]),
        "Whether hosts that are not on `network_allowlist` may be reached.",
    )
    .default("\"deny\""),
];

pub(crate) const RULE: &[Field] = &[
    Field::new(
        "name",
        Kind::Name,
        "The name of the rule, as decisions and records show it.",
    )
    .required(),
    Field::new(
        "condition",
        Kind::Object(CONDITION),
        "When the rule matches.",
    )
    .required(),
    Field::new(
        "action",
        Kind::Choice(ACTIONS),
        "The answer when it does: `allow` and `audit` allow, `deny` and `block` do not.",
    )
    .required(),
    Field::new(
        "priority",
        Kind::Integer {
            min: i64::MIN,
            max: i64::MAX,
        },
        "Rules of a higher priority come first; of equal ones, the one that is written first.",
    )
    .default("0"),
    Field::new(
        "message",
        Kind::Text,
        "The reason that is given, in place of the name of the rule.",
    )
    .default("\"\""),
    Field::new(
        "override",
        Kind::Flag,
        "In a folder: takes the place of the rule of the same name above, unless that denies.",
    )
    .default("false"),
];

pub(crate) const CONDITION: &[Field] = &[
    Field::new("field", Kind::Name, "The fact that is looked at. A fact that is missing or null never matches.").required(),
    Field::new("operator", Kind::Choice(OPERATORS), "How it is compared, as Python would: `in` and `contains` with lists and parts of text, `matches` with `re.search`.")
        .required(),
    Field::new("value", Kind::Any, "What it is compared with.").required(),
];

pub(crate) const MOUNTS: &[Field] = &[
    Field::new(
        "input_dir",
        Kind::Name,
        "A folder that is seen read-only, at `/input`.",
    )
    .nullable(),
    Field::new(
        "output_dir",
        Kind::Name,
        "A folder that can be written to, at `/output`.",
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
    "host",
    "port",
    "path",
];
