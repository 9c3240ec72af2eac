use super::*;

fn refused(name: &str) -> bool {
    check(name, "x").is_err()
}

#[test]
fn the_list_of_the_contract_is_refused() {
    for name in "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_DEBUG LD_PROFILE LD_SHOW_AUXV
         LD_DYNAMIC_WEAK BASH_ENV ENV PYTHONSTARTUP PYTHONPATH PYTHONHOME NODE_OPTIONS
         RUBYOPT PERL5LIB PERL5OPT JAVA_TOOL_OPTIONS _JAVA_OPTIONS"
        .split_whitespace()
    {
        assert!(refused(name), "{name}");
    }
}

#[test]
fn what_the_contract_let_through_is_refused_too() {
    for name in "PYTHONINSPECT PYTHONUSERBASE PYTHONBREAKPOINT PYTHONWARNINGS
         PYTHONEXECUTABLE PYTHONPLATLIBDIR PYTHONCASEOK PYTHONPYCACHEPREFIX
         GLIBC_TUNABLES GCONV_PATH IFS PROMPT_COMMAND PS4 BUN_OPTIONS RUBYLIB
         JDK_JAVA_OPTIONS GIT_SSH_COMMAND GIT_SSH GIT_EXTERNAL_DIFF GIT_EXEC_PATH
         GIT_CONFIG_COUNT GIT_ASKPASS GIT_PAGER BRIG_ANYTHING SHELLOPTS OPENSSL_CONF
         LESSOPEN DOTNET_STARTUP_HOOKS"
        .split_whitespace()
    {
        assert!(refused(name), "{name}");
    }
}

#[test]
fn case_does_not_matter() {
    for name in [
        "ld_preload",
        "Ld_Preload",
        "Path",
        "pythonPath",
        "node_options",
        "Bash_Func_x",
    ] {
        assert!(refused(name), "{name}");
    }
}

#[test]
fn a_path_has_absolute_directories() {
    for value in ["/opt/tools/bin", "/opt/tools/bin:/usr/bin:/bin"] {
        assert!(check("PATH", value).is_ok(), "{value}");
    }
    for value in [
        "",
        "bin",
        "/usr/bin:",
        ":/usr/bin",
        "/usr/bin:.",
        "/usr/../x",
        "~/bin",
    ] {
        assert!(check("PATH", value).is_err(), "{value}");
    }
    assert!(check("Path", "/usr/bin").is_err());
}

#[test]
fn ordinary_variables_pass() {
    for name in "HOME LANG TZ API_KEY PYTHONUNBUFFERED PYTHONHASHSEED pythonutf8 GIT_AUTHOR_NAME
         MY_PATH OLD_PRELOAD LDFLAGS EDITOR _ a1 ENVIRONMENT"
        .split_whitespace()
    {
        assert!(!refused(name), "{name}");
    }
}

#[test]
fn a_name_is_a_name() {
    for name in [
        "",
        "1A",
        "A=B",
        "A B",
        "A\0",
        "A\n",
        "É",
        "BASH_FUNC_x%%",
        "A-B",
        " A",
    ] {
        assert!(refused(name), "{name:?}");
    }
}

#[test]
fn values_are_bounded_and_without_nul() {
    assert!(check("A", "1\0x").is_err());
    assert!(check("A", &"x".repeat(MAX_STRING)).is_err());
    assert!(check("A", &"x".repeat(MAX_STRING - 3)).is_ok());
    assert!(check("A", "line\nbreak").is_ok());
    let many: Vec<_> = (0..=MAX_COUNT)
        .map(|i| (format!("A{i}"), String::new()))
        .collect();
    assert!(check_all(&many).is_err());
    assert!(check_all(&many[1..]).is_ok());
    let large: Vec<_> = (0..20)
        .map(|i| (format!("A{i}"), "x".repeat(100_000)))
        .collect();
    assert!(check_all(&large).is_err());
}

#[test]
fn the_error_names_the_variable() {
    let text = check("LD_PRELOAD", "/x.so")
        .expect_err("refused")
        .to_string();
    assert_eq!(
        text,
        "invalid environment variable: `LD_PRELOAD` is refused: it controls the dynamic loader or \
         a system library"
    );
}

#[test]
fn those_of_the_execution_win_and_names_are_unique() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let session = [pair("A", "1"), pair("B", "1")];
    let merged = merge(
        &session,
        vec![pair("B", "2"), pair("C", "1"), pair("C", "2")],
    );
    assert_eq!(
        merged.expect("allowed"),
        [pair("A", "1"), pair("B", "2"), pair("C", "2")]
    );
    assert!(merge(&session, vec![pair("LD_PRELOAD", "x")]).is_err());
}
