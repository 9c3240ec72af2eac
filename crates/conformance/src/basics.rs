use std::time::Duration;

use brig_sandbox::{Control, Error, ExecutionStatus, Language, Request};

use super::fixture::{Done, Fixture, agent, check, check_eq, code, code_of, run, sh};
use super::program::{Step, make_directory, print, write};

pub(crate) async fn a_program_is_answered_with_what_it_did(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let program = fixture.program([print("out\n"), Step::PrintError("err\n".into())]);
    let report = run(&session, program).await?;
    check_eq!(report.status(), ExecutionStatus::Completed);
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

pub(crate) async fn exit_codes_are_the_programs_own(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    for code in [0, 1, 3, 42, 126, 127, 255] {
        let report = run(&session, fixture.program([Step::Exit(code)])).await?;
        let completed = report.status() == ExecutionStatus::Completed;
        check_eq!(completed, (code == 0));
        let outcome = report.outcome;
        check_eq!(outcome.exit_code, code);
        check_eq!(outcome.signal, None);
        check_eq!(outcome.killed, None);
    }
    Ok(())
}

pub(crate) async fn a_signal_is_128_and_its_number(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR1", 10)] {
        let outcome = run(&session, sh(&format!("kill -{name} $$")))
            .await?
            .outcome;
        check_eq!(outcome.exit_code, 128 + number);
        check_eq!(outcome.signal, Some(number));
        check_eq!(outcome.killed, None);
    }
    Ok(())
}

pub(crate) async fn what_does_not_exist_cannot_run(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let programs = ["no-such-program", "/no/such/program", "/etc"];
    // Programs have paths only in a Linux userland.
    let tried = if fixture.has(Control::LinuxUserland).await? {
        3
    } else {
        1
    };
    for program in &programs[..tried] {
        let failed = session.run(vec![(*program).into()]).await;
        let expected = if *program == "/etc" { 126 } else { 127 };
        match failed {
            Err(Error::CannotRun { exit_code, .. }) => {
                check_eq!(exit_code, expected);
            }
            other => check!(false, "{program}: {other:?}"),
        }
    }
    fixture.output(&session, [Step::Exit(0)]).await?;
    Ok(())
}

pub(crate) async fn python_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let source = "import sys\nprint(sum(range(10)), sys.argv[1:])\nsys.exit(5)";
    let mut request = Request::code(Language::Python, source);
    if let brig_sandbox::request::Work::Code { args, .. } = &mut request.work {
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

pub(crate) async fn bash_runs(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let outcome = code(&session, Language::Bash, "a=(x y); echo ${#a[@]}; exit 4").await?;
    check_eq!(outcome.stdout.bytes, b"2\n");
    check_eq!(outcome.exit_code, 4);
    Ok(())
}

pub(crate) async fn node_runs(fixture: Fixture) -> Done {
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

pub(crate) async fn code_of_any_size_runs(fixture: Fixture) -> Done {
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

pub(crate) async fn every_execution_has_a_fresh_interpreter(fixture: Fixture) -> Done {
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

pub(crate) async fn an_execution_has_its_own_folder(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let pwd = [Step::PrintDirectory];
    check_eq!(fixture.output(&session, &pwd).await?, "/workspace\n");
    fixture.output(&session, [make_directory("a/b")]).await?;
    for cwd in ["a/b", "/workspace/a/b"] {
        let mut request = fixture.program(&pwd);
        request.cwd = Some(cwd.into());
        let outcome = run(&session, request).await?.outcome;
        check_eq!(
            String::from_utf8_lossy(&outcome.stdout.bytes),
            "/workspace/a/b\n"
        );
    }
    let mut request = fixture.program([write("ran", "")]);
    request.cwd = Some("missing".into());
    let failed = session.start(request).await?.wait().await;
    check!(matches!(failed, Err(Error::CannotRun { .. })), "{failed:?}");
    check_eq!(
        fixture.output(&session, [Step::List]).await?,
        "./a\n./a/b\n"
    );
    Ok(())
}

pub(crate) async fn usage_is_measured(fixture: Fixture) -> Done {
    fixture.needs_usage()?;
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let outcome = run(&session, sh(busy)).await?.outcome;
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
pub(crate) async fn the_peak_is_that_of_one_execution(fixture: Fixture) -> Done {
    fixture.needs_usage()?;
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let hungry = "head -c 90000000 /dev/zero | tail -c 80000000 | wc -c";
    let large = run(&session, sh(hungry)).await?.outcome.usage;
    check!(large.peak_memory_bytes > 70_000_000, "{large:?}");
    let small = run(&session, sh("true")).await?.outcome.usage;
    check!(small.peak_memory_bytes < 50_000_000, "{small:?}");
    Ok(())
}

pub(crate) async fn a_run_on_its_own_leaves_nothing(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let config = fixture.config();
    let report = sandbox
        .run_once(
            &agent(),
            config.clone(),
            fixture.program([Step::PrintDirectory, write("x", ""), Step::List]),
        )
        .await?;
    check_eq!(report.outcome.stdout.bytes, b"/workspace\n./x\n");
    let report = sandbox
        .run_once(&agent(), config, fixture.program([Step::List]))
        .await?;
    check_eq!(report.outcome.stdout.total, 0);
    check!(sandbox.list_sessions()?.is_empty(), "a session is left");
    for folder in ["sessions", "layers", "references", "staging", "trash"] {
        let left = std::fs::read_dir(fixture.state().join(folder))?.count();
        check_eq!((folder, left), (folder, 0));
    }
    Ok(())
}
