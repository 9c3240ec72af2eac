//! Tests that start themselves again, in a process of their own.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Set to the name of the test in the process that [`alone!`](crate::alone) starts.
const ALONE: &str = "BRIG_TEST_ALONE";

/// The name that `--exact` takes: of the test around it, or of the named function of this module.
#[macro_export]
macro_rules! test_name {
    () => {
        $crate::name_of(&|| ())
    };
    ($function:ident) => {
        $crate::name_in(module_path!(), stringify!($function))
    };
}

/// Goes on in a process of its own, and returns from the test in the first one. For tests that
/// measure or change their process: descriptors, memory, limits, children. Of a binary, one of them
/// runs at a time.
#[macro_export]
macro_rules! alone {
    () => {
        if !$crate::is_alone(&$crate::test_name!()) {
            return;
        }
    };
}

/// The name of the test that has this closure. The compiler names a closure after the functions
/// around it: `binary::module::test::{{closure}}`.
pub fn name_of<F>(_: &F) -> String {
    let path = std::any::type_name::<F>();
    let end = path.find("::{{closure}}").unwrap_or(path.len());
    without_binary(&path[..end]).to_owned()
}

pub fn name_in(module: &str, function: &str) -> String {
    match without_binary(module) {
        "" => function.to_owned(),
        module => format!("{module}::{function}"),
    }
}

fn without_binary(path: &str) -> &str {
    path.split_once("::").map_or("", |(_, rest)| rest)
}

/// Whether this process was started for this test. If not, one was, and has passed it.
pub fn is_alone(test: &str) -> bool {
    static ONE: Mutex<()> = Mutex::new(());
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return true;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = again(test);
    command.env(ALONE, test);
    passes(command);
    false
}

/// This program, with nothing but one test to run.
pub fn again(test: &str) -> Command {
    let own = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(own);
    command.args(arguments(test));
    command
}

/// The same, started by another program that takes it as its last arguments, such as `unshare`.
pub fn again_by(mut command: Command, test: &str) -> Command {
    let own = std::env::current_exe().expect("the path of this program");
    command.arg(own).args(arguments(test));
    command
}

fn arguments(test: &str) -> [&str; 3] {
    [test, "--exact", "--nocapture"]
}

/// Runs what [`again`] has made, and fails where the test fails or there is none of that name.
#[track_caller]
pub fn passes(mut command: Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let passed = output.status.success() && text.contains("1 passed; 0 failed");
    assert!(passed, "{command:?}: {}", output.status);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_knows_its_name() {
        let name = "again::tests::a_test_knows_its_name";
        assert_eq!(test_name!(), name);
        let inside = || test_name!();
        assert_eq!(inside(), name);
        assert_eq!(test_name!(a_test_knows_its_name), name);
    }

    #[test]
    fn a_process_of_its_own() {
        let first = std::env::var("BRIG_TESTING_FIRST").ok();
        if first.is_none() && std::env::var_os(super::ALONE).is_none() {
            // The only one that looks at it in this process.
            let mut command = super::again(&test_name!());
            command.env("BRIG_TESTING_FIRST", std::process::id().to_string());
            return super::passes(command);
        }
        alone!();
        let first = first.expect("started by the first");
        assert_ne!(first, std::process::id().to_string());
        assert_eq!(std::env::var(super::ALONE).as_deref(), Ok(&*test_name!()));
    }

    #[test]
    #[should_panic(expected = "no_such_test")]
    fn a_test_that_is_not_there_does_not_pass() {
        super::passes(super::again("again::tests::no_such_test"));
    }
}
