//! A script of the host and the modules beside it.

use std::os::unix::fs::{PermissionsExt, symlink};

use crate::common::Brig;

fn project() -> Brig {
    let brig = Brig::new();
    for directory in ["project", "project/package", "elsewhere"] {
        std::fs::create_dir(brig.home().join(directory)).unwrap();
    }
    brig.write("project/helper.py", "WORD = 'from the helper'");
    brig.write("project/package/__init__.py", "from .inner import N");
    brig.write("project/package/inner.py", "N = 7");
    brig.write(
        "project/app.py",
        "import helper, package; print(helper.WORD, package.N)",
    );
    brig
}

#[test]
fn a_script_finds_the_modules_beside_it() {
    let brig = project();
    brig.run(["run", "project/app.py"])
        .exits(0)
        .prints("from the helper 7\n")
        .complains("shown: `")
        .complains("project`, read-only as /script");
    // A link to a script belongs to where the script is, as for Python itself.
    symlink("project/app.py", brig.home().join("link.py")).unwrap();
    brig.run(["run", "link.py"])
        .exits(0)
        .prints("from the helper 7\n");
    brig.run(["run", "--script-dir=false", "project/app.py"])
        .exits(1)
        .complains("No module named 'helper'");
}

#[test]
fn a_script_knows_its_own_path() {
    let brig = project();
    brig.write(
        "project/app.py",
        "import sys, os\n\
         print(__file__, sys.argv, sys.path[0], os.getcwd(), __name__)\n\
         print(os.path.exists(__file__), 'c' in globals())",
    );
    brig.run(["run", "project/app.py", "-x"]).exits(0).prints(
        "/script/app.py ['/script/app.py', '-x'] /script /workspace __main__\nTrue False\n",
    );
    brig.write("project/wrong.py", "def f():\n    return 1 / 0\nf()");
    brig.run(["run", "project/wrong.py"])
        .exits(1)
        .complains("File \"/script/wrong.py\", line 2, in f\n    return 1 / 0");
    // In what is mounted anyway, it is there.
    brig.run(["run", "-w", "project", "project/app.py"])
        .exits(0)
        .prints(
            "/workspace/app.py ['/workspace/app.py'] /workspace /workspace __main__\nTrue False\n",
        );
    brig.run(["run", "-v", "project:/src", "project/app.py"])
        .exits(0)
        .prints("/src/app.py ['/src/app.py'] /src /workspace __main__\nTrue False\n");
    // Alone it has a name, and the workspace is where modules are found.
    brig.write(
        "elsewhere/alone.py",
        "import sys; print(__file__[-9:], sys.path[0] == '')",
    );
    brig.run(["run", "elsewhere/alone.py"])
        .exits(0)
        .prints("/alone.py True\n")
        .stays_silent();
}

#[test]
fn a_shell_script_finds_what_is_beside_it() {
    let brig = Brig::new();
    std::fs::create_dir_all(brig.home().join("project/lib")).unwrap();
    brig.write("project/lib/words.sh", "word() { echo \"a word $1\"; }");
    brig.write("project/helper", "#!/bin/sh\necho helped \"$@\"");
    brig.write(
        "project/app.sh",
        "here=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\n\
         source \"$here/lib/words.sh\"\n\
         main() { word \"$1\"; \"$(dirname \"$0\")/helper\" \"$1\"; pwd; }\n\
         if [[ ${BASH_SOURCE[0]} == \"$0\" ]]; then main \"$@\"; fi\n\
         (echo x >\"$here/new\") 2>/dev/null || echo not written",
    );
    let helper = brig.home().join("project/helper");
    std::fs::set_permissions(helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let says = "a word 7\nhelped 7\n/workspace\n";
    brig.run(["run", "project/app.sh", "7"])
        .exits(0)
        .prints(&format!("{says}not written\n"))
        .complains("project`, read-only as /script");
    // In what is mounted anyway.
    brig.run(["run", "-v", "project:/src", "project/app.sh", "7"])
        .exits(0)
        .prints(&format!("{says}not written\n"));
    brig.run(["run", "--script-dir=false", "project/app.sh", "7"])
        .exits(0)
        .complains("words.sh: No such file or directory");
    // What runs is the text that was decided on, and not a link to the file.
    brig.write("project/app.sh", "test ! -L \"$0\" && echo a file");
    brig.run(["run", "project/app.sh"])
        .exits(0)
        .prints("a file\n");
}

#[test]
fn the_directory_of_a_script_is_read_only_and_hides_secrets() {
    let brig = project();
    std::fs::create_dir(brig.home().join("project/.ssh")).unwrap();
    brig.write("project/.ssh/id", "secret");
    brig.write("project/data.txt", "data");
    brig.write(
        "project/app.py",
        "import os\n\
         here = os.path.dirname(__file__)\n\
         print(open(here + '/data.txt').read(), os.listdir(here + '/.ssh'))\n\
         try: open(here + '/new', 'w')\n\
         except OSError as error: print(error.strerror)",
    );
    brig.run(["run", "project/app.py"])
        .exits(0)
        .prints("data []\nRead-only file system\n")
        .complains("hidden: `.ssh`");
    assert!(!brig.home().join("project/new").exists());
}

#[test]
fn what_must_not_be_mounted_is_not_shown_for_a_script() {
    let brig = project();
    brig.write("helper.py", "WORD = 'from home'");
    brig.write("app.py", "import os; print(os.path.exists('/script'))");
    // The home directory: refused, as with -v, and the script runs alone.
    brig.run(["run", "app.py"])
        .exits(0)
        .prints("False\n")
        .complains("only `app.py` is in the sandbox")
        .complains("is refused")
        .complains("-v DIRECTORY:/script");
    brig.run(["run", "--script-dir", "app.py"])
        .exits(125)
        .complains("is refused");
    brig.run(["run", "--script-dir=false", "app.py"])
        .exits(0)
        .prints("False\n")
        .stays_silent();
    // Downloads: only if asked for.
    std::fs::create_dir(brig.home().join("Downloads")).unwrap();
    brig.write("Downloads/other.py", "");
    brig.write(
        "Downloads/got.py",
        "import os; print(os.path.exists('/script'))",
    );
    brig.run(["run", "Downloads/got.py"])
        .exits(0)
        .prints("False\n")
        .complains("--script-dir shows");
    brig.run(["run", "--script-dir", "Downloads/got.py"])
        .exits(0)
        .prints("True\n");
    // A link that code may have created does not choose the directory.
    symlink(
        "../../elsewhere/app.py",
        brig.home().join("project/package/app.py"),
    )
    .unwrap();
    brig.write("elsewhere/app.py", "print(1)");
    brig.run(["run", "project/package/app.py"]).exits(125);
    brig.run(["run", "--script-dir", "-c", "1"]).exits(125);
}

#[test]
fn a_policy_decides_on_the_text_of_a_script_that_has_modules() {
    let brig = project();
    let rule = "{name: no-word, condition: {field: code, operator: contains, value: forbidden}, \
                action: deny}";
    let policy = format!("rules:\n  - {rule}\ndefaults: {{action: allow}}\n");
    brig.write("deny.yaml", &policy);
    brig.write("project/bad.py", "import helper; print('forbidden')");
    brig.run(["run", "--policy", "deny.yaml", "project/bad.py"])
        .exits(126);
    brig.run(["run", "--policy", "deny.yaml", "project/app.py"])
        .exits(0)
        .prints("from the helper 7\n");
}

#[test]
fn node_finds_modules_beside_a_script() {
    if !std::path::Path::new("/usr/bin/node").exists() {
        return;
    }
    let brig = Brig::new();
    std::fs::create_dir(brig.home().join("js")).unwrap();
    brig.write("js/lib.js", "exports.n = 7");
    brig.write(
        "js/app.js",
        "#!/usr/bin/env node\n\
         const lib = require('./lib'); const s = 1, f = 2;\n\
         console.log(lib.n, __filename, __dirname, require.main === module, process.argv.slice(1))",
    );
    brig.run(["run", "js/app.js", "-x"])
        .exits(0)
        .prints("7 /script/app.js /script true [ '/script/app.js', '-x' ]\n");
}
