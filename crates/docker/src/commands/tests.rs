use std::collections::BTreeSet;

use brig_guest_host::commands::Allowed;
use brig_guest_host::link::CommandObserver;

use super::*;

fn lists(held: bool) -> Lists {
    let programs = ["/usr/bin/python3.11", "/usr/bin/script"].map(PathBuf::from);
    Lists {
        commands: Commands::default(),
        scan: Arc::new(Scan {
            names: [("curl".to_owned(), Arc::from("curl"))].into(),
            allowed: Some(Allowed {
                programs: BTreeSet::from(programs),
                without_shell: vec![("/usr/bin/script".into(), "/usr/bin/dash".into())],
                ..Allowed::default()
            }),
            ..Scan::default()
        }),
        denied: None,
        held: held.then(|| ProfileRules {
            profile: "brig-x".into(),
            writable: ["/", "/tmp"].map(str::to_owned).into(),
        }),
        lines: Mutex::default(),
    }
}

fn judged(lists: &Lists, path: &str) -> (bool, String) {
    let command = lists.observe(Exec {
        id: 1,
        process: 2,
        parent: 1,
        caller: Some("/usr/bin/python3.11".into()),
        program: path.into(),
        path: Some(path.into()),
        arguments: vec![path.into()],
        refused: false,
        ..Exec::default()
    });
    let command = command.expect("a record");
    (command.allowed, command.code)
}

#[test]
fn what_the_kernel_refuses_is_recorded_as_refused() {
    let expected = [
        ("/usr/bin/python3.11", true, "command.allowed"),
        ("/usr/bin/id", false, "command.not-allowed"),
        ("/usr/bin/script", false, "command.not-allowed"),
        ("/tmp/curl", false, "command.denied"),
    ];
    for (path, allowed, code) in expected {
        assert_eq!(
            judged(&lists(true), path),
            (allowed, code.to_owned()),
            "{path}"
        );
        // Without a profile all of them start.
        assert!(judged(&lists(false), path).0, "{path}");
    }
}
