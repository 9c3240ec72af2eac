//! Which variables are refused, and why. Names are compared without regard to case; a name that
//! ends in `*` stands for all that begin like it.

const REFUSED: &[(&str, &str)] = &[
    ("Brig sets it itself", "BRIG_*"),
    (
        "it controls the dynamic loader or a system library",
        "LD_* DYLD_* GLIBC_TUNABLES GCONV_PATH GETCONF_DIR HOSTALIASES LOCALDOMAIN LOCPATH
         MALLOC_TRACE NIS_PATH NLSPATH RESOLV_HOST_CONF RES_OPTIONS TZDIR OPENSSL_CONF
         OPENSSL_ENGINES OPENSSL_MODULES GIO_EXTRA_MODULES GTK_MODULES GTK_PATH QT_PLUGIN_PATH",
    ),
    (
        "it makes a shell run or read something else",
        "BASH_ENV ENV IFS PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4 SHELLOPTS BASHOPTS BASH_FUNC_*
         BASH_XTRACEFD BASH_LOADABLES_PATH BASH_COMPAT CDPATH GLOBIGNORE EXECIGNORE ZDOTDIR FPATH
         FCEDIT INPUTRC HISTFILE",
    ),
    (
        "it makes Python load or run something else",
        "PYTHON* PYENV_* PYLAUNCHER_* __PYVENV_LAUNCHER__ PIP_CONFIG_FILE",
    ),
    (
        "it makes a JavaScript runtime load or run something else",
        "NODE_OPTIONS NODE_PATH NODE_REPL_EXTERNAL_MODULE NODE_V8_COVERAGE NODE_ICU_DATA
         NODE_REDIRECT_WARNINGS NODE_CHANNEL_FD NODE_COMPILE_CACHE BUN_OPTIONS BUN_INSPECT*
         BUN_BE_BUN DENO_V8_FLAGS ELECTRON_RUN_AS_NODE NPM_CONFIG_NODE_OPTIONS
         NPM_CONFIG_SCRIPT_SHELL NPM_CONFIG_SHELL NPM_CONFIG_USERCONFIG NPM_CONFIG_GLOBALCONFIG
         NPM_CONFIG_GIT NPM_CONFIG_EDITOR NPM_CONFIG_VIEWER",
    ),
    ("it makes Perl load or run something else", "PERL*"),
    (
        "it makes Ruby load or run something else",
        "RUBY* GEM_* BUNDLE_* IRBRC",
    ),
    (
        "it makes a Java runtime load or run something else",
        "JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS JDK_JAVAC_OPTIONS JAVA_OPTIONS JAVA_OPTS
         IBM_JAVA_OPTIONS OPENJ9_JAVA_OPTIONS CLASSPATH MAVEN_OPTS MAVEN_ARGS GRADLE_OPTS ANT_OPTS
         ANT_ARGS SBT_OPTS",
    ),
    (
        "it makes a .NET runtime load or run something else",
        "DOTNET_* CORECLR_* COR_* COMPLUS_* MONO_*",
    ),
    ("it makes git run or read something else", "GIT_*"),
    (
        "it makes an interpreter or a build tool load or run something else",
        "PHPRC PHP_INI_SCAN_DIR LUA_INIT* LUA_PATH* LUA_CPATH* R_PROFILE* R_ENVIRON* R_LIBS*
         R_HOME JULIA_LOAD_PATH JULIA_DEPOT_PATH JULIA_PROJECT ERL_FLAGS ERL_AFLAGS ERL_ZFLAGS
         ERL_LIBS ELIXIR_ERL_OPTIONS CAML_LD_LIBRARY_PATH OCAMLRUNPARAM GUILE_LOAD_PATH
         GUILE_LOAD_COMPILED_PATH TCLLIBPATH AWKPATH AWKLIBPATH GOFLAGS GOENV RUSTC RUSTDOC
         RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_*
         CARGO_TARGET_* MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES GCC_EXEC_PREFIX COMPILER_PATH
         CMAKE_TOOLCHAIN_FILE",
    ),
    (
        "it makes a common tool run another program",
        "LESSOPEN LESSCLOSE TAR_OPTIONS RSYNC_RSH CVS_RSH SVN_SSH SSH_ASKPASS SSH_SK_PROVIDER
         SUDO_ASKPASS SUDO_EDITOR VIMINIT GVIMINIT EXINIT VIMRUNTIME MYVIMRC EMACSLOADPATH BROWSER
         HGRCPATH PSQLRC ANSIBLE_CONFIG WGETRC CURL_HOME",
    ),
];

/// Exceptions: known to change only how a program speaks or keeps its memory, not what it runs.
const HARMLESS: &str = "
    PYTHONASYNCIODEBUG PYTHONCOERCECLOCALE PYTHONDEVMODE PYTHONDONTWRITEBYTECODE
    PYTHONFAULTHANDLER PYTHONHASHSEED PYTHONINTMAXSTRDIGITS PYTHONIOENCODING PYTHONMALLOC
    PYTHONNODEBUGRANGES PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONPROFILEIMPORTTIME PYTHONSAFEPATH
    PYTHONTRACEMALLOC PYTHONUNBUFFERED PYTHONUTF8 PYTHONVERBOSE PYTHON_COLORS PYTHON_CPU_COUNT
    PYTHON_GIL PERL_HASH_SEED PERL_UNICODE PERL_SIGNALS
    GIT_AUTHOR_DATE GIT_AUTHOR_EMAIL GIT_AUTHOR_NAME GIT_COMMITTER_DATE GIT_COMMITTER_EMAIL
    GIT_COMMITTER_NAME GIT_OPTIONAL_LOCKS GIT_TERMINAL_PROMPT
    DOTNET_CLI_TELEMETRY_OPTOUT DOTNET_NOLOGO DOTNET_SYSTEM_GLOBALIZATION_INVARIANT";

pub(super) fn why_refused(name: &str, value: &str) -> Option<&'static str> {
    if name.eq_ignore_ascii_case("PATH") {
        return why_path_refused(name, value);
    }
    if HARMLESS
        .split_whitespace()
        .any(|harmless| harmless.eq_ignore_ascii_case(name))
    {
        return None;
    }
    REFUSED
        .iter()
        .find(|(_, rules)| rules.split_whitespace().any(|rule| matches(rule, name)))
        .map(|(why, _)| *why)
}

/// A program that is found by a relative directory is whatever the code has put there.
fn why_path_refused(name: &str, value: &str) -> Option<&'static str> {
    let absolute = |directory: &str| {
        let mut parts = directory.split('/');
        directory.starts_with('/') && parts.all(|part| part != ".." && part != ".")
    };
    if name != "PATH" {
        Some("only `PATH` in capital letters is known")
    } else if !value.split(':').all(absolute) {
        Some("its directories must be absolute, without `.` and `..`")
    } else {
        None
    }
}

fn matches(rule: &str, name: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(start) => name
            .get(..start.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
        None => rule.eq_ignore_ascii_case(name),
    }
}
