//! Every file-system call of every operation fails, or the program is killed there. What was acknowledged is there
//! afterwards, what was refused changed nothing, the records say what happened, and the rest is as it was.
//!
//! `some` takes a few calls for each kind of fault, from a seed that is printed and can be given (BRIG_TEST_SEED);
//! `every` takes all of them, for `scripts/test --full`.

mod calls;
mod kinds;
mod operation;
mod tracer;
mod world;

use self::operation::{Operation, attack};

/// For each kind of fault, in the short tier.
const SOME: usize = 2;

const CREATE: Operation = Operation {
    words: &["session", "create", "new", "--json"],
    starts_with: "session_created",
    ends_with: "session_created",
    killed_before: None,
};
const EXECUTE: Operation = Operation {
    words: &[
        "session",
        "exec",
        "mine",
        "--json",
        "--",
        "sh",
        "-c",
        "echo changed > a; rm b1; mkdir d; echo new > c",
    ],
    starts_with: "execution_started",
    ends_with: "execution_finished",
    killed_before: None,
};
const RUN: Operation = Operation {
    words: &["run", "--json", "--", "true"],
    starts_with: "execution_started",
    ends_with: "receipt",
    killed_before: None,
};
const CHECKPOINT: Operation = Operation {
    words: &["session", "checkpoint", "mine", "second", "--json"],
    starts_with: "checkpoint_saved",
    ends_with: "checkpoint_saved",
    killed_before: None,
};
const DELETE_CHECKPOINT: Operation = Operation {
    words: &["session", "checkpoint", "mine", "--rm", "first", "--json"],
    starts_with: "checkpoint_deleted",
    ends_with: "checkpoint_deleted",
    killed_before: None,
};
const RESTORE: Operation = Operation {
    words: &["session", "restore", "mine", "first", "--json"],
    starts_with: "session_restored",
    ends_with: "session_restored",
    killed_before: None,
};
const FORK: Operation = Operation {
    words: &["session", "fork", "mine", "first", "--as", "copy", "--json"],
    starts_with: "session_forked",
    ends_with: "session_forked",
    killed_before: None,
};
const DESTROY: Operation = Operation {
    words: &["session", "destroy", "mine", "--json"],
    starts_with: "session_destroy_requested",
    ends_with: "session_destroyed",
    killed_before: None,
};
const PRUNE: Operation = Operation {
    words: &["prune", "--yes", "--json"],
    starts_with: "session_destroy_requested",
    ends_with: "session_destroyed",
    killed_before: None,
};
const SESSION_NETWORK: Operation = Operation {
    words: &["session", "network", "block", "mine", "d.example", "--json"],
    starts_with: "allowlist_changed",
    ends_with: "allowlist_changed",
    killed_before: None,
};
const ALLOW: Operation = Operation {
    words: &["sandbox", "allow", "d.example", "--json"],
    starts_with: "allowlist_changed",
    ends_with: "allowlist_changed",
    killed_before: None,
};
const BLOCK: Operation = Operation {
    words: &["sandbox", "block", "d.example", "--json"],
    starts_with: "allowlist_changed",
    ends_with: "allowlist_changed",
    killed_before: None,
};
const ROTATE_KEY: Operation = Operation {
    words: &["audit", "rotate-key", "--json"],
    starts_with: "key_rotated",
    ends_with: "key_rotated",
    killed_before: None,
};

/// The next process has to finish what a rotation began.
const AFTER_A_ROTATION: Operation = Operation {
    killed_before: Some((&["audit", "rotate-key"], "audit/head")),
    ..RUN
};

macro_rules! tests {
    ($($name:ident: $operation:ident,)*) => {
        mod some {
            $(#[test]
            fn $name() {
                super::attack(&super::$operation, Some(super::SOME));
            })*
        }

        mod every {
            $(#[test]
            fn $name() {
                super::attack(&super::$operation, None);
            })*
        }
    };
}

tests! {
    create: CREATE,
    execute: EXECUTE,
    run: RUN,
    checkpoint: CHECKPOINT,
    delete_checkpoint: DELETE_CHECKPOINT,
    restore: RESTORE,
    fork: FORK,
    destroy: DESTROY,
    prune: PRUNE,
    session_network: SESSION_NETWORK,
    allow: ALLOW,
    block: BLOCK,
    rotate_key: ROTATE_KEY,
    after_a_rotation: AFTER_A_ROTATION,
}
