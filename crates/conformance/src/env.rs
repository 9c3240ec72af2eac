use std::collections::BTreeMap;

use brig_sandbox::{Control, Error, Session, SessionConfig};

use super::fixture::{Done, Fixture, agent, check, check_eq, run, text};
use super::program::{Step, print, write};

/// What programs may expect, set by Brig and by the shell itself.
const EXPECTED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "TERM",
    "SHELL",
    "TMPDIR",
    "HOSTNAME",
    "PYTHONUNBUFFERED",
    "npm_config_fetch_retries",
];

async fn variables(session: &Session) -> Done<BTreeMap<String, String>> {
    let listing = text(session, "env").await?;
    let pairs = listing.lines().filter_map(|line| line.split_once('='));
    Ok(pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

pub(crate) async fn nothing_of_the_caller_leaks(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let inside = variables(&fixture.session().await?).await?;
    check!(inside.contains_key("PATH"), "control: the listing works");
    check!(
        std::env::vars_os().count() > 1,
        "control: the caller has variables"
    );
    for name in inside.keys() {
        check!(
            EXPECTED.contains(&name.as_str()) || fixture.variables().contains(&name.as_str()),
            "`{name}` came from somewhere"
        );
    }
    check_eq!(inside.get("HOME").map(String::as_str), Some("/workspace"));
    Ok(())
}

pub(crate) async fn variables_that_were_given_arrive(fixture: Fixture) -> Done {
    let env = vec![
        ("FOR_ALL".into(), "1".into()),
        ("BOTH".into(), "session".into()),
    ];
    let config = SessionConfig {
        env,
        ..fixture.config()
    };
    let session = fixture.session_with(config).await?;
    let variable = |name: &str| Step::PrintVariable(name.into());
    let shown = [
        variable("FOR_ALL"),
        print("|"),
        variable("BOTH"),
        print("|"),
        variable("ODD"),
    ];
    let mut request = fixture.program(&shown);
    request.env.push(("BOTH".into(), "execution".into()));
    request
        .env
        .push(("ODD".into(), "a=b\n'c' \"d\" $e \u{e9}".into()));
    let outcome = run(&session, request).await?.outcome;
    let expected = "1|execution|a=b\n'c' \"d\" $e \u{e9}";
    check_eq!(String::from_utf8_lossy(&outcome.stdout.bytes), expected);
    // Nothing of it stays for the next execution.
    check_eq!(fixture.output(&session, &shown).await?, "1|session|");
    if fixture.has(Control::LinuxUserland).await? {
        let inside = variables(&session).await?;
        check_eq!(inside.get("BOTH").map(String::as_str), Some("session"));
        check!(
            !inside.contains_key("ODD"),
            "it stayed for the next execution"
        );
    }
    Ok(())
}

pub(crate) async fn loader_variables_are_refused(fixture: Fixture) -> Done {
    let sandbox = fixture.sandbox()?;
    let session = fixture.session().await?;
    for name in [
        "LD_PRELOAD",
        "ld_library_path",
        "PYTHONPATH",
        "BASH_ENV",
        "Path",
        "A=B",
        "",
    ] {
        let mut request = fixture.program([write("ran", "")]);
        request.env.push((name.into(), "/x".into()));
        let refused = session.start(request).await;
        check!(
            matches!(refused, Err(Error::InvalidConfig { .. })),
            "{name}: {refused:?}"
        );
        let mut config = fixture.config();
        config.env.push((name.into(), "/x".into()));
        let refused = sandbox.create_session(&agent(), None, config).await;
        check!(
            matches!(refused, Err(Error::InvalidConfig { .. })),
            "{name}: {refused:?}"
        );
    }
    check_eq!(fixture.output(&session, [Step::List]).await?, "");
    Ok(())
}
