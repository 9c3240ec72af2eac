//! `brig session cp -r`: directories in and out.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::common::Brig;

fn tree() -> Brig {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("src/deep/empty")).unwrap();
    brig.write("src/a.txt", "a");
    brig.write("src/deep/b.txt", "bb");
    brig.write("secret.txt", "outside");
    symlink("../secret.txt", brig.home().join("src/link")).unwrap();
    fs::create_dir(brig.home().join("src/.ssh")).unwrap();
    brig.write("src/.ssh/id", "key");
    brig.run(["session", "create", "s"]).exits(0);
    brig
}

fn inside(brig: &Brig) -> String {
    let code = "import os\nfor at, _, names in sorted(os.walk('.')):\n  for n in sorted(names): \
                print(os.path.join(at, n))";
    brig.run(["session", "exec", "s", "-c", code])
        .exits(0)
        .stdout()
}

#[test]
fn a_directory_goes_in_without_links_and_secrets() {
    let brig = tree();
    let done = brig
        .run(["session", "cp", "-r", "--json", "src", "s:"])
        .exits(0)
        .complains("hidden: `.ssh`")
        .complains("symbolic links are not copied; left out: 1")
        .complains("empty directories are not copied; left out: 1");
    assert_eq!(
        done.json(),
        serde_json::json!({"path": "src", "bytes": 3, "files": 2})
    );
    assert_eq!(inside(&brig), "./src/a.txt\n./src/deep/b.txt\n");
    // Once more only if asked for.
    brig.run(["session", "cp", "-r", "src", "s:"])
        .exits(125)
        .complains("already exists");
    brig.run(["session", "cp", "-r", "--force", "src", "s:"])
        .exits(0);
    brig.run(["session", "cp", "-r", "src/.", "s:"]).exits(0);
    brig.run(["session", "cp", "-r", "src/.", "s:"]).exits(125);
    brig.run(["session", "cp", "-r", "src", "s:other/name"])
        .exits(0);
    let all = inside(&brig);
    for path in ["./a.txt", "./deep/b.txt", "./other/name/deep/b.txt"] {
        assert!(all.contains(path), "{all}");
    }
    // What may not be mounted is not copied.
    brig.run(["session", "cp", "-r", ".", "s:home"])
        .exits(125)
        .complains("is refused");
    brig.run(["session", "cp", "-r", "/etc", "s:"]).exits(125);
    brig.run(["session", "cp", "src", "s:"])
        .exits(125)
        .complains("-r");
    // One file works with the flag, too.
    brig.run(["session", "cp", "-r", "secret.txt", "s:one"])
        .exits(0);
}

#[test]
fn a_directory_comes_out_as_plain_files() {
    let brig = tree();
    let code = "import os\n\
                os.makedirs('out/deep/empty')\n\
                open('out/a', 'w').write('a'); os.chmod('out/a', 0o755)\n\
                open('out/deep/b', 'w').write('bb')\n\
                os.symlink('/etc/passwd', 'out/link'); os.symlink('..', 'out/deep/up')\n\
                os.mkfifo('out/pipe')";
    brig.run(["session", "exec", "s", "-c", code]).exits(0);
    brig.run(["session", "cp", "-r", "s:out", "."])
        .exits(0)
        .complains("symbolic links are not copied; left out: 2");
    let out = brig.home().join("out");
    assert_eq!(fs::read_to_string(out.join("a")).unwrap(), "a");
    assert_eq!(fs::read_to_string(out.join("deep/b")).unwrap(), "bb");
    assert!(out.join("deep/empty").is_dir());
    assert!(out.join("link").symlink_metadata().is_err());
    assert!(out.join("pipe").symlink_metadata().is_err());
    let mode = fs::metadata(out.join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0);
    // It has a new name, always.
    for words in [
        &["session", "cp", "-r", "s:out", "."][..],
        &["session", "cp", "-rf", "s:out", "."],
    ] {
        brig.run(words).exits(125).complains("already exists");
    }
    brig.run(["session", "cp", "-r", "s:out", "named"]).exits(0);
    assert!(brig.home().join("named/deep/b").is_file());
    brig.run(["session", "cp", "-r", "s:.", "all"]).exits(0);
    assert!(brig.home().join("all/out/a").is_file());
    // Nothing else is left beside them.
    let names = fs::read_dir(brig.home()).unwrap().flatten();
    let left = names.filter(|one| one.file_name().to_string_lossy().starts_with(".brig"));
    assert_eq!(left.count(), 0);
}

#[test]
fn holes_and_hard_links_do_not_fill_the_disk() {
    let brig = Brig::new();
    brig.run(["session", "create", "s", "--disk", "8M"])
        .exits(0);
    let code = "import os\n\
                os.mkdir('holes'); os.mkdir('links'); os.mkdir('plain')\n\
                for i in range(3): open(f'holes/{i}', 'w').truncate(3 << 20)\n\
                open('plain/0', 'wb').write(bytes(1 << 20))\n\
                for i in range(9): os.link('plain/0', f'links/{i}')";
    brig.run(["session", "exec", "s", "-c", code]).exits(0);
    brig.run(["session", "cp", "-r", "s:plain", "."]).exits(0);
    for name in ["holes", "links"] {
        brig.run(["session", "cp", "-r", &format!("s:{name}"), "."])
            .exits(125)
            .complains("larger together than the disk of the session");
        assert!(!brig.home().join(name).exists());
    }
}

#[test]
fn a_link_of_the_code_chooses_no_directory() {
    let brig = tree();
    fs::create_dir(brig.home().join("shared")).unwrap();
    fs::create_dir(brig.home().join("private")).unwrap();
    brig.write("private/note", "private");
    // As code with a writable mount could leave it.
    symlink("../private", brig.home().join("shared/data")).unwrap();
    brig.run(["session", "cp", "-r", "shared/data", "s:in"])
        .exits(125);
    brig.run(["session", "cp", "-r", "s:.", "shared/data/out"])
        .exits(125);
    brig.run(["session", "cp", "-r", "shared", "s:in"]).exits(0);
    assert!(!inside(&brig).contains("note"));
    // Positive control.
    brig.run(["session", "cp", "-r", "private", "s:in2"])
        .exits(0);
    assert!(inside(&brig).contains("./in2/note"));
}
