//! The party outside that every start of a program waits for, and what it writes down.

use std::sync::Arc;

use crate::listed::{agent, run, sandbox, stdout, under};
use brig_audit::{Command, Event as Fact, MemoryLog, Record, RecordError, Recorder};
use brig_sandbox::{Language, Report, Request, Session, SessionConfig};

fn of<'a>(report: &'a Report, program: &str) -> &'a Command {
    let mut all = report.attempted.commands.iter();
    let found = all.find(|one| one.program == program);
    found.unwrap_or_else(|| panic!("{program}: {:?}", report.attempted.commands))
}

/// A folder above it can get another name where the root is writable, and its own name says
/// nothing.
#[tokio::test]
async fn a_stand_in_is_known_by_what_it_is() {
    let code = "import os, subprocess\n\
        os.symlink('/run/brig-denied/.shim', '/tmp/harmless')\n\
        print(subprocess.run(['/tmp/harmless']).returncode)\n\
        os.rename('/run', '/moved')\n\
        print(subprocess.run(['/moved/brig-denied/.shim']).returncode)\n\
        os.makedirs('/run/brig-denied')\n\
        os.symlink('/usr/bin/true', '/run/brig-denied/.shim')\n\
        print(subprocess.run(['/run/brig-denied/.shim']).returncode)\n";
    let config = SessionConfig {
        read_only_root: false,
        ..under("command_denylist: [az]\n")
    };
    let report = run(Arc::new(MemoryLog::default()), config, code).await;
    assert_eq!(stdout(&report), "126\n126\n0\n", "{:?}", report.outcome);
    for program in ["/tmp/harmless", "/moved/brig-denied/.shim"] {
        assert_eq!(of(&report, program).code, "command.denied");
    }
    let other = of(&report, "/run/brig-denied/.shim");
    assert_eq!(other.code, "command.allowed", "the control");
}

#[tokio::test]
async fn code_is_on_record_by_its_file() {
    let mut request = Request::code(Language::Python, "pass");
    if let brig_sandbox::request::Work::Code { args, .. } = &mut request.work {
        args.push("--all".into());
    }
    let sandbox = sandbox(Arc::new(MemoryLog::default()));
    let config = under("command_denylist: [az]\n");
    let report = sandbox.run_once(&agent(), config, request).await.unwrap();
    let [one] = report.attempted.commands.as_slice() else {
        panic!("{:?}", report.attempted.commands)
    };
    assert_eq!(one.arguments[1..], ["code.py", "--all"]);
}

/// Panics in the thread that every start waits for.
#[derive(Debug)]
struct Deadly;

impl Recorder for Deadly {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        let deadly =
            matches!(&record.event, Fact::CommandAttempted(one) if one.program.ends_with("factor"));
        assert!(!deadly, "the thread ends here, as the test wants");
        Ok(())
    }
}

async fn answer(session: &Session, code: &str) -> String {
    let report = session.execute_code(Language::Python, code).await;
    stdout(&report.unwrap())
}

#[tokio::test]
async fn without_the_thread_that_decides_nothing_starts() {
    let code = |first: &str| {
        format!(
            "import subprocess\nfor name in ['/usr/bin/true', '{first}', '/usr/bin/true']:\n\
             \x20   try:\n        done = subprocess.run([name, '6'], stdout=-1)\n\
             \x20       print(done.returncode, done.stdout.decode().strip())\n\
             \x20   except OSError as error:\n        print(error.strerror)\n"
        )
    };
    let sandbox = sandbox(Arc::new(Deadly));
    let config = under("command_denylist: [az]\n");
    let session = sandbox
        .create_session(&agent(), None, config)
        .await
        .unwrap();
    let fine = answer(&session, &code("/usr/bin/echo")).await;
    assert_eq!(fine, "0 \n0 6\n0 \n", "the control");
    // The loader of the one that could not be recorded fails, before any code of the program.
    let fatal = answer(&session, &code("/usr/bin/factor")).await;
    assert_eq!(fatal, "0 \n127 \nFunction not implemented\n");
    let next = session.run(vec!["/usr/bin/true".into()]).await;
    let ran = next.is_ok_and(|report| report.outcome.success());
    assert!(!ran, "nor does another execution");
    let _ = session.destroy().await;
}
