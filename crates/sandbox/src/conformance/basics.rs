use std::time::Duration;

use super::fixture::{
    Done, Fixture, agent, check, check_eq, code, code_of, outcome, run, sh, text,
};
use crate::{Error, ExecutionStatus, Language, Request};

pub async fn a_program_is_answered_with_what_it_did(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let report = run(&session, sh("echo out; echo err >&2")).await?;
    check_eq!(report.status, ExecutionStatus::Completed);
    check!(report.decision.allowed, "the decision is missing");
    check_eq!(report.session_id, *session.id());
    check!(
        !report.enforcement.is_empty(),
        "nothing is said about what is enforced"
    );
    let json = report.to_json();
    check_eq!(json["result"]["stdout"], "out\n");
    check_eq!(json["result"]["stderr"], "err\n");
    check_eq!(json["result"]["success"], true);
    check_eq!(json["result"]["killed"], false);
    Ok(())
}

pub async fn exit_codes_are_the_programs_own(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    for code in [0, 1, 3, 42, 126, 127, 255] {
        let report = run(&session, sh(&format!("exit {code}"))).await?;
        let completed = report.status == ExecutionStatus::Completed;
        check_eq!(completed, (code == 0));
        let outcome = outcome(report)?;
        check_eq!(outcome.exit_code, code);
        check_eq!(outcome.signal, None);
        check_eq!(outcome.killed, None);
    }
    Ok(())
}

pub async fn a_signal_is_128_and_its_number(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR1", 10)] {
        let outcome = outcome(run(&session, sh(&format!("kill -{name} $$"))).await?)?;
        check_eq!(outcome.exit_code, 128 + number);
        check_eq!(outcome.signal, Some(number));
        check_eq!(outcome.killed, None);
    }
    Ok(())
}

pub async fn what_does_not_exist_cannot_run(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    for program in ["no-such-program", "/no/such/program", "/etc"] {
        let failed = session.run(vec![program.into()]).await;
        let expected = if program == "/etc" { 126 } else { 127 };
        match failed {
            Err(Error::CannotRun { exit_code, .. }) => {
                check_eq!(exit_code, expected);
            }
            other => check!(false, "{program}: {other:?}"),
        }
    }
    text(&session, "exit 0").await?;
    Ok(())
}

pub async fn python_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let source = "import sys\nprint(sum(range(10)), sys.argv[1:])\nsys.exit(5)";
    let mut request = Request::code(Language::Python, source);
    if let crate::request::Work::Code { args, .. } = &mut request.work {
        args.extend(["a".into(), "b c".into()]);
    }
    let outcome = code_of(&session, request).await?;
    check_eq!(
        String::from_utf8_lossy(&outcome.stdout.bytes),
        "45 ['a', 'b c']\n"
    );
    check_eq!(outcome.exit_code, 5);
    let broken = code(&session, Language::Python, "def (").await?;
    check_eq!(broken.exit_code, 1);
    check!(
        String::from_utf8_lossy(&broken.stderr.bytes).contains("SyntaxError"),
        "no traceback"
    );
    Ok(())
}

pub async fn bash_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = code(&session, Language::Bash, "a=(x y); echo ${#a[@]}; exit 4").await?;
    check_eq!(outcome.stdout.bytes, b"2\n");
    check_eq!(outcome.exit_code, 4);
    Ok(())
}

pub async fn node_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = code(
        &session,
        Language::Node,
        "console.log(1 + 2); process.exit(6)",
    )
    .await?;
    check_eq!(outcome.stdout.bytes, b"3\n");
    check_eq!(outcome.exit_code, 6);
    Ok(())
}

pub async fn code_of_any_size_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let line = "# a comment that only takes room\n";
    let source = format!(
        "{}print('the end')\n",
        line.repeat(5 * 1024 * 1024 / line.len())
    );
    let outcome = code(&session, Language::Python, &source).await?;
    check_eq!(outcome.stdout.bytes, b"the end\n");
    let odd = "print('quotes \\' \" $HOME `x` \u{e9}')";
    let outcome = code(&session, Language::Python, odd).await?;
    check_eq!(
        String::from_utf8_lossy(&outcome.stdout.bytes),
        "quotes ' \" $HOME `x` \u{e9}\n"
    );
    Ok(())
}

pub async fn every_execution_has_a_fresh_interpreter(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    code(
        &session,
        Language::Python,
        "x = 1; open('kept', 'w').write('file')",
    )
    .await?;
    let outcome = code(
        &session,
        Language::Python,
        "print(open('kept').read(), 'x' in dir())",
    );
    check_eq!(
        String::from_utf8_lossy(&outcome.await?.stdout.bytes),
        "file False\n"
    );
    Ok(())
}

pub async fn an_execution_has_its_own_folder(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    check_eq!(text(&session, "pwd").await?, "/workspace\n");
    text(&session, "mkdir -p a/b").await?;
    for cwd in ["a/b", "/workspace/a/b"] {
        let mut request = sh("pwd");
        request.cwd = Some(cwd.into());
        let outcome = outcome(run(&session, request).await?)?;
        check_eq!(
            String::from_utf8_lossy(&outcome.stdout.bytes),
            "/workspace/a/b\n"
        );
    }
    let mut request = sh("touch ran");
    request.cwd = Some("missing".into());
    let failed = session.start(request).await?.wait().await;
    check!(matches!(failed, Err(Error::CannotRun { .. })), "{failed:?}");
    check_eq!(text(&session, "ls").await?, "a\n");
    Ok(())
}

pub async fn usage_is_measured(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let outcome = outcome(run(&session, sh(busy)).await?)?;
    check!(
        outcome.usage.cpu > Duration::from_millis(10),
        "cpu {:?}",
        outcome.usage.cpu
    );
    check!(
        outcome.duration >= outcome.usage.cpu / 4,
        "duration {:?}",
        outcome.duration
    );
    check!(
        outcome.usage.peak_memory_bytes > 100_000,
        "{:?}",
        outcome.usage
    );
    Ok(())
}

/// Not that of an earlier one in the same session.
pub async fn the_peak_is_that_of_one_execution(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let hungry = "head -c 90000000 /dev/zero | tail -c 80000000 | wc -c";
    let large = outcome(run(&session, sh(hungry)).await?)?.usage;
    check!(large.peak_memory_bytes > 70_000_000, "{large:?}");
    let small = outcome(run(&session, sh("true")).await?)?.usage;
    check!(small.peak_memory_bytes < 50_000_000, "{small:?}");
    Ok(())
}

pub async fn a_run_on_its_own_leaves_nothing(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let config = fixture.config();
    let report = sandbox
        .run_once(&agent(), config.clone(), sh("pwd; touch x; ls"))
        .await?;
    check_eq!(outcome(report)?.stdout.bytes, b"/workspace\nx\n");
    let report = sandbox.run_once(&agent(), config, sh("ls")).await?;
    check_eq!(outcome(report)?.stdout.total, 0);
    check!(sandbox.list_sessions()?.is_empty(), "a session is left");
    for folder in ["sessions", "layers", "staging", "trash"] {
        let left = std::fs::read_dir(fixture.state().join(folder))?.count();
        check_eq!((folder, left), (folder, 0));
    }
    Ok(())
}
