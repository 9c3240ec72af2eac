//! Every code, once: its group, its meaning, and what to do about it.

macro_rules! reason_codes {
    ($(
        $(#[doc = $doc:literal])*
        $group:ident $marker:literal {
            $($variant:ident = $code:literal, $meaning:literal $(, $fix:literal)?;)*
        }
    )*) => {
        /// A section of the page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Group {
            $($(#[doc = $doc])* $group,)*
        }

        impl Group {
            /// Every group of codes, once.
            pub const ALL: &'static [Group] = &[$(Group::$group,)*];

            /// The name of its table in the page.
            pub fn marker(self) -> &'static str {
                match self {
                    $(Group::$group => $marker,)*
                }
            }
        }

        /// A stable reason code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ReasonCode {
            $($(#[doc = $meaning] $variant,)*)*
        }

        impl ReasonCode {
            /// Every code once, group by group.
            pub const ALL: &'static [ReasonCode] = &[$($(ReasonCode::$variant,)*)*];

            /// As it is written, such as `policy.rule`.
            pub const fn code(self) -> &'static str {
                match self {
                    $($(ReasonCode::$variant => $code,)*)*
                }
            }

            /// The section of the page that lists the code.
            pub const fn group(self) -> Group {
                match self {
                    $($(ReasonCode::$variant => Group::$group,)*)*
                }
            }

            /// What the code means, as the page shows it.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($(ReasonCode::$variant => $meaning,)*)*
                }
            }

            /// What to do, unless nothing is wrong.
            pub const fn fix(self) -> Option<&'static str> {
                match self {
                    $($(ReasonCode::$variant => reason_codes!(@fix $($fix)?),)*)*
                }
            }
        }
    };
    (@fix) => { None };
    (@fix $fix:literal) => { Some($fix) };
}

reason_codes! {
    /// From the library and the command line.
    Error "errors" {
        InputName = "input.name", "an agent id, session id or checkpoint name is invalid", "use letters, digits, `_`, `.` and `-`, a letter or digit first";
        InputConfig = "input.config", "a value is out of range, a variable or setting is refused, or the session belongs to another backend", "change the value that the message names";
        InputMount = "input.mount", "a mount is refused, or its source does not exist", "mount another directory";
        InputHost = "input.host", "an entry is not a valid host", "write a name, an address or a network, with a `:port` or without";
        PolicyUnenforceable = "policy.unenforceable", "a required control can't be enforced here", "see the hint, or accept the risk with `--waive`";
        PolicyDenied = "policy.denied", "the policy denied the execution (exit code 126)", "run `brig policy explain`, or change the policy";
        PolicyWritable = "policy.writable", "a policy or an agent file is in a directory that the sandbox may write to", "move the file, or mount the directory read-only";
        PolicyNoGovernance = "policy.no-governance", "`--policy-root` has no policy for the path", "add a `governance.yaml`";
        PolicyInvalid = "policy.invalid", "a policy is invalid; each problem has its own code", "fix the problems that are listed";
        RunNoInterpreter = "run.no-interpreter", "the language is not installed where the sandbox can see it", "install it, or use an image that has it";
        RunCannotStart = "run.cannot-start", "the program was not found (exit code 127), is not executable (126), or did not start (125)", "check the path of the program and its permissions";
        SessionUnknown = "session.unknown", "there is no such session", "run `brig session ls` to list them";
        SessionExists = "session.exists", "a session of that name exists", "choose another name, or destroy the session";
        SessionNotSaved = "session.not-saved", "the execution took place, but its changes to the session's files could not be saved", "see the message; the saved files are as before it";
        StateForeign = "state.foreign", "Brig was started with sudo, and the state directory or the configuration belongs to the user who called it: root would leave files there that this user can't use", "run it without sudo, or with `sudo -H`";
        OperationIncomplete = "operation.incomplete", "the operation took place, but what had to follow it failed: it may not survive a power failure, files that are of no use may be left, or its end is not on record", "see the message; don't repeat the operation";
        SessionBusy = "session.busy", "another process has the session open, or something runs in it", "wait, or destroy the session";
        SessionAmbiguous = "session.ambiguous", "more than one agent has a session with that id", "name the agent too";
        ExecutionUnknown = "execution.unknown", "there is no such execution, or it is no longer kept", "use the id of a running execution";
        CheckpointUnknown = "checkpoint.unknown", "there is no such checkpoint", "run `brig session checkpoint SESSION --ls` to list them";
        CheckpointExists = "checkpoint.exists", "a checkpoint of that name exists", "choose another name, or delete the checkpoint";
        CheckpointTampered = "checkpoint.tampered", "a checkpoint was changed after it was saved", "delete it, and restore another one";
        FileFailed = "file.failed", "a file can't be read or written, or its path contains a symbolic link", "check the path and its permissions";
        BackendUnavailable = "backend.unavailable", "the backend can't be used here", "run `brig doctor`, or use another backend";
        BackendSetup = "backend.setup", "the sandbox could not be set up; the message names the step", "run `brig doctor`";
        BackendNested = "backend.nested", "the container or the security module around Brig does not let a sandbox be set up", "allow what the hint names";
        BackendLost = "backend.lost", "the sandbox ended unexpectedly", "run it again";
        BackendProtocol = "backend.protocol", "the guest violated the protocol", "do not trust the result: the guest may be compromised";
        EngineUnreachable = "engine.unreachable", "the container engine is unreachable", "start the engine, or check its address";
        EngineOld = "engine.old", "the container engine is too old", "update the engine";
        EngineTimeout = "engine.timeout", "the container engine does not respond", "check the load and the logs of the engine";
        EngineFailed = "engine.failed", "the container engine reports an error", "see the message of the engine";
        EngineImage = "engine.image", "the image is not available", "pull the image, or check its name";
        EngineRuntime = "engine.runtime", "the engine does not know the runtime", "configure the runtime in the engine, or use another one";
        EngineRuntimeIgnored = "engine.runtime-ignored", "the engine did not use the requested runtime, so nothing was run", "use an engine that has the runtime, or request another one";
        EngineApparmor = "engine.apparmor", "the AppArmor profile for a command allowlist can't be loaded", "run as root, or remove the allowlist";
        AzureSettings = "azure.settings", "a setting of the Azure backend is missing", "set it as the message says";
        AzureCredential = "azure.credential", "there is no token for Azure", "sign in: `az login`";
        AzureRole = "azure.role", "Azure refuses the request: a role is missing (403)", "assign the role that the message names";
        AzureGroup = "azure.group", "there is no such sandbox group, or it can't be used yet (404)", "create the group, or check its name";
        AzureIdentity = "azure.identity", "the sandbox group has a managed identity, whose tokens code could use", "remove the identity from the group, or accept it in the settings";
        AzurePolicy = "azure.egress-policy", "the egress policy in force is not the one that was sent; the sandbox was deleted and nothing was run", "report it; do not use the backend until it is understood";
        AzureUnreachable = "azure.unreachable", "Azure does not answer", "check the network and the region";
        AzureFailed = "azure.failed", "Azure reports an error", "see the message of the service";
        AzureLeft = "azure.not-deleted", "a sandbox could not be deleted, or not be found again", "delete it as the message says; the service deletes it by itself later";
        AuditUnwritable = "audit.unwritable", "the audit record could not be written, so nothing was done", "free disk space, or make the log writable";
        IoFailed = "io.failed", "a file or system call of the host failed", "see the message";
    }

    /// Only from the command line.
    Cli "cli" {
        InputUsage = "input.usage", "the command line is invalid", "run the command with `--help`";
        InputTerminal = "input.terminal", "`-it` was given, but standard input is not a terminal", "leave out `-t`";
        InputFact = "input.fact", "`--fact` names a fact that Brig states itself", "choose another name";
        InputAlias = "input.alias", "an alias name is invalid", "use letters, digits, `-` and `_`, a letter or digit first";
        InputLanguage = "input.language", "the language of a script can't be determined", "name it with `--lang`";
        ConfigUnreadable = "config.unreadable", "the configuration, an agent file or its policy can't be read; nothing is run", "fix or remove the file";
        ConfigInvalid = "config.invalid", "the configuration is invalid; each problem is shown with its position", "fix the problems that are listed";
        ConfigUnwritable = "config.unwritable", "the configuration can't be replaced", "check the permissions of its directory";
        ConfigBusy = "config.busy", "another program is changing the configuration", "try again";
        ConfigShape = "config.shape", "the configuration can't be edited without loss", "edit it by hand";
        AgentInvalid = "agent.invalid", "a problem of an agent file", "see the fix of the problem";
        AgentUnknown = "agent.unknown", "the name is neither an alias nor a file", "give the path of an agent file, or add an alias";
        AgentUntrusted = "agent.untrusted", "an agent file requests what only the user may decide: no sandbox, or an address that is not public", "read the file, then run `brig agent trust`";
        FileExists = "file.exists", "`cp` replaces no file without `--force`", "use `--force`, or another name";
        FileFolder = "file.folder", "a file is expected, but the path is a directory", "copy a directory with `-r`";
        BackendUnknown = "backend.unknown", "this build or the configuration has no backend of that name", "run `brig doctor` to list them";
        ApprovalUnknown = "approval.unknown", "no request of that id waits for an answer", "run `brig approvals ls` to list them";
        ApprovalAnswered = "approval.answered", "the request was answered already, or its time was up", "see the audit log for what came of it";
        StateNoHome = "state.no-home", "there is no home directory for sessions and the audit log", "set `HOME` or `XDG_STATE_HOME`";
        StateUnwritable = "state.unwritable", "the directory for sessions and the audit log can't be written", "set `XDG_STATE_HOME` to a directory that you may write to";
        AgtEntries = "agt.entries", "`brig audit agt-chain` was given entries that AGT does not accept", "fix the entry that the message names";
    }

    /// What decided about an execution.
    Decision "decisions" {
        PolicyRule = "policy.rule", "a rule matched";
        PolicyDefault = "policy.default", "no rule matched; the default action applied";
        PolicyError = "policy.error", "a rule could not be evaluated, so the execution was denied", "fix the rule that the reason names";
        PolicyNone = "policy.none", "no policy is loaded";
        PolicyApproval = "policy.approval", "the policy requires an approval, and the request was denied, was not answered in time, or could not be sent to anybody", "do not retry; ask the operator";
        PolicyApproved = "policy.approved", "the policy requires an approval, and it was given";
    }

    /// How an execution ended, in its receipt.
    Receipt "receipts" {
        RunFailed = "run.failed", "the program failed: its exit code is not 0", "see its output";
        RunTimeout = "run.timeout", "the time limit was reached", "raise the limit where it was set: a flag, the policy, or `brig session create`";
        RunMemory = "run.memory", "the memory limit was reached", "raise the limit where it was set: a flag, the policy, or `brig session create`";
        RunProcesses = "run.processes", "the limit of processes was reached", "raise the limit where it was set: a flag, the policy, or `brig session create`";
        RunUnobserved = "run.unobserved", "the sandbox stopped reporting what it uses, so that its limits could not be enforced", "run it again; a program that takes all processors and processes may cause it";
        RunDisk = "run.disk", "the disk limit was reached", "raise the limit where it was set: a flag, the policy, or `brig session create`";
        RunOutput = "run.output", "the output limit was reached", "raise the limit where it was set: a flag, the policy, or `brig session create`";
        RunCancelled = "run.cancelled", "it was cancelled, or a signal arrived before the start (exit code 128 + signal)";
        RunDestroyed = "run.destroyed", "its session was destroyed, or the sandbox was lost";
    }

    /// What the gateway decided.
    Network "network" {
        NetworkRule = "network.rule", "allowed by a rule";
        NetworkDefault = "network.default", "allowed because the policy allows every public host";
        NetworkHiddenName = "network.hidden-name", "allowed; an encrypted part of the TLS ClientHello (ECH) may contain another name";
        NetworkNoRule = "network.no-rule", "no rule allows it", "allow the host";
        NetworkPort = "network.port", "a rule allows the host, but not this port", "add the port to the rule";
        NetworkBlocked = "network.blocked", "a rule denies it", "unblock the host";
        NetworkAddress = "network.address", "the address, or every address of the name, is blocked, or is not public and no rule names it", "name the address in a rule";
        NetworkMismatch = "network.mismatch", "TLS or HTTP names another host than the requested one", "connect to the host that is named";
        NetworkRaw = "network.raw", "the protocol is neither TLS nor HTTP, and the rule does not have `/tcp`", "add `/tcp` to the rule";
        NetworkMalformed = "network.malformed", "the host is invalid, or the address can't be read", "use a valid host";
        NetworkProtocol = "network.protocol", "the protocol or command is not supported", "use HTTP, CONNECT, SOCKS5 or a plain connection";
        NetworkUnrecorded = "network.unrecorded", "the decision could not be recorded, so it was denied", "free disk space, or make the log writable";
        NetworkUnresolved = "network.unresolved", "allowed, but the name does not exist", "check the name";
        NetworkUnreachable = "network.unreachable", "allowed, but the host does not respond", "check the host";
        NetworkRevoked = "network.revoked", "the rules changed while it was open", "connect again if it is still allowed";
        NetworkIncomplete = "network.incomplete", "more was decided than the service remembers, so some requests have no record", "run less at a time, if every request has to be recorded";
        NetworkLimit = "network.limit", "too many connections, too slow, or idle for too long", "open fewer connections";
    }

    /// The outcome of a program start.
    Command "commands" {
        CommandAllowed = "command.allowed", "it was started";
        CommandObserved = "command.observed", "it was started; a rule names it that can only be observed, or `command_mode` is `observe`";
        CommandFailed = "command.failed", "it was allowed, but the kernel did not start it: not executable, not a program, a bad argument", "check the program";
        CommandUnconfirmed = "command.unconfirmed", "it was allowed, but its process ended before it was seen to run; most often the kernel did not start it", "check the program";
        CommandDenied = "command.denied", "it is on a denylist, or can't be checked against one", "remove it from `command_denylist`";
        CommandNotAllowed = "command.not-allowed", "it is not on an allowlist", "add it to `command_allowlist`";
    }

    /// Problems of a policy, with the position.
    Policy "policy-problems" {
        PolicyYaml = "policy.yaml", "not YAML, or YAML that is not allowed, such as tags", "see the fix of the problem";
        PolicyJson = "policy.json", "not JSON", "check quotes, commas and brackets";
        PolicyEncoding = "policy.encoding", "not UTF-8, or a control character", "save the file as plain UTF-8 text";
        PolicyTooLarge = "policy.too-large", "the file, or what its aliases repeat, is too large", "split it into several policies";
        PolicyTooDeep = "policy.too-deep", "nested too deeply", "write it with fewer levels";
        PolicyAmbiguous = "policy.ambiguous", "a word that YAML 1.1 and 1.2 read differently", "quote it, or write it in the form that both read";
        PolicyUnknownKey = "policy.unknown-key", "an unknown key", "remove it, or fix its spelling";
        PolicyMissingKey = "policy.missing-key", "a required key is missing", "add it";
        PolicyDuplicateKey = "policy.duplicate-key", "a key is given twice", "remove one of the two";
        PolicyType = "policy.type", "a value has the wrong type", "give a value of the type that is named";
        PolicyRange = "policy.range", "a number is out of range", "give a value in the range that is named";
        PolicyChoice = "policy.choice", "a value is not one of the allowed ones", "write one of them";
        PolicyEmpty = "policy.empty", "a value is empty", "give it a value, or remove it";
        PolicyHost = "policy.host", "an entry is not a valid host", "write a name, an address or a network, with a `:port` or without";
        PolicyName = "policy.name", "an entry is not a valid name", "write one name for each entry";
        PolicyCommand = "policy.command", "an entry is not a valid command. As `decision.code`: a list of commands denied the program", "write a name, an absolute path, or a set";
        PolicyVariable = "policy.variable", "a variable has an invalid name or value", "use letters, digits and `_`";
        PolicyControl = "policy.control", "there is no such control", "use a name that is listed";
        PolicyPattern = "policy.pattern", "a pattern is invalid or too large", "write it for Python's `re` module";
        PolicyOperator = "policy.operator", "the operator can't be used with the value", "give a value that fits the operator";
        PolicyField = "policy.field", "a condition tests a fact that Brig does not state", "fix its name, or add the fact";
        PolicyDuplicateRule = "policy.duplicate-rule", "two rules have the same name", "give each rule a unique name";
        PolicyOpenDefault = "policy.open-default", "`action` is missing, and what no rule matches is allowed", "write `action: deny` or `action: allow`";
        PolicyPublicHost = "policy.public-host", "a rule names a host where anyone can publish", "name the one host that is needed";
        PolicyPrivateAddress = "policy.private-address", "a rule names an address of this machine or of its cloud", "remove it, unless the code needs it";
        PolicyCase = "policy.case", "a case of a test file is invalid", "see the fix of the problem";
        PolicyContext = "policy.context", "a file of facts is not a map", "write a map of facts";
        PolicyLine = "policy.line", "a line of `brig policy eval` lacks `policies` or `context`", "add the missing key";
        PolicyMore = "policy.more", "there are more problems than are reported", "fix the reported ones first";
    }

    /// Of calls of tools.
    Tool "tools" {
        ToolNotAllowed = "tool.not-allowed", "the tool is not on the allowlist of the policy", "do not retry; use an allowed tool, or add it to `tool_allowlist`";
        ToolDenied = "tool.denied", "a rule of the policy denied the call", "do not retry with the same arguments; run `brig policy explain`";
        ToolUnknown = "tool.unknown", "no tool has this name", "check the name; `brig tools ls` lists the tools";
        ToolArguments = "tool.arguments", "the arguments do not match the schema of the tool, or are too large", "correct the arguments";
        ToolTooMany = "tool.too-many", "the execution made more calls than allowed, or too many at once", "make fewer calls, or raise `max_tool_calls`";
        ToolFailed = "tool.failed", "the tool reported an error", "see the message of the tool";
        ToolTimeout = "tool.timeout", "the tool did not answer in time", "ask for less, or raise the timeout of the tool";
        ToolUnavailable = "tool.unavailable", "the program or server of the tool can't be used", "run `brig tools check`";
        ToolResult = "tool.result", "the result of the tool does not match its schema", "report it to the owner of the tool";
        ToolResultTooLarge = "tool.result-too-large", "the result of the tool is too large", "ask for less";
        ToolWritable = "tool.writable", "the program of a tool is in a directory that the sandbox may write to", "move the file, or mount the directory read-only";
        ToolCancelled = "tool.cancelled", "the execution ended before the tool answered", "end an execution after its calls, or raise its time limit";
        ToolApproval = "tool.approval", "the call of a tool was denied by an approver, or not approved in time", "do not retry; ask the operator";
    }

    /// From `brig mcp`, in the result of a tool.
    Mcp "mcp" {
        McpArguments = "mcp.arguments", "the arguments of the call do not match the schema of the tool", "correct the arguments";
        McpBusy = "mcp.busy", "too many calls wait for their turn", "retry when a call has ended";
        McpSessions = "mcp.sessions", "too many sessions are open", "end one with `end_session`";
    }

    /// From `brig audit`, and from the log itself.
    Audit "audit" {
        AuditChanged = "audit.changed", "a record's hash does not match its contents", "do not trust the record";
        AuditNotARecord = "audit.not-a-record", "a line is not a record", "do not trust what follows";
        AuditOutOfPlace = "audit.out-of-place", "another record is in its place: records were removed, moved or repeated", "do not trust what follows";
        AuditUnlinked = "audit.unlinked", "a record does not follow from the one before: one of them was replaced", "do not trust either";
        AuditIncomplete = "audit.incomplete", "a line ends in the middle, and others follow", "do not trust what follows";
        AuditAdded = "audit.added", "no head covers the record, and it was not written with the log's key", "do not trust the record; the next writer removes it";
        AuditPruned = "audit.pruned", "the summary of pruned records is wrong, or no key of the log signed it", "compare it with a copy";
        AuditVerified = "audit.verified", "the record of earlier verifications was changed", "remove the file `verified`, and verify again";
        AuditTruncated = "audit.truncated", "the log ends before a head does", "compare it with a copy";
        AuditReplaced = "audit.replaced", "the records are not those of the given head; or the log was moved while in use", "compare it with a copy";
        AuditHead = "audit.head", "a head is missing, wrong, or not signed by the right key", "compare it with a copy";
        AuditKey = "audit.key", "a key is missing, readable by others, or not a key of this log", "restore the key, or fix its permissions";
        AuditUnfinished = "audit.unfinished", "there is no head and at most the first record: the creation of the log was interrupted, or its files were removed", "run anything: the next run creates it again";
        AuditRotation = "audit.rotation", "a change of keys is not signed by both keys", "do not trust what follows";
        AuditNodes = "audit.nodes", "the stored tree does not match the records", "remove the file `nodes`; it is rebuilt";
        AuditDamaged = "audit.damaged", "the log can't be continued, because a record of it is invalid", "run `brig audit verify`, then move the log away";
        AuditRecord = "audit.record", "a record is too long, or can't be written canonically, so it was refused", "shorten what is recorded";
        AuditProof = "audit.proof", "a proof is invalid", "do not trust what it proves";
        AuditNoLog = "audit.no-log", "there is no such log", "check the path";
        AuditNoRecord = "audit.no-record", "there is no such record", "check the number";
        AuditBusy = "audit.busy", "another process has locked the log for 10 seconds", "try again";
        AuditIo = "audit.io", "a file of the log can't be read or written", "check its permissions, and the free disk space";
        AuditBroken = "audit.broken", "a write was lost, so nothing more is written", "start the process again";
    }
}
