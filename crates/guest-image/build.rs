//! Builds the guest as one static program, whatever profile Brig itself is built with.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let crates = Path::new(&var("CARGO_MANIFEST_DIR")).join("..");
    for source in ["guest", "wire", "linux", "transfer", "caller"] {
        println!("cargo::rerun-if-changed={}", crates.join(source).display());
    }
    println!(
        "cargo::rerun-if-changed={}",
        crates.join("../Cargo.lock").display()
    );

    let target = guest_target();
    let folder = PathBuf::from(var("OUT_DIR")).join("guest");
    let mut cargo = Command::new(var("CARGO"));
    cargo
        .args([
            "build",
            "--locked",
            "--profile",
            "guest",
            "--target",
            &target,
        ])
        .arg("--manifest-path")
        .arg(crates.join("guest/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&target).join("\u{1f}"));
    // The guest is built the same way under every tool that drives this build.
    for name in [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    // Some tools (`maturin --zig`) set a linker that ignores that the guest is static. For another architecture one has to
    // be set, and the check below finds out what it does.
    if arch(&target) == arch(&var("HOST")) {
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(is_linker) {
                cargo.env_remove(name);
            }
        }
    }
    announce();
    let status = cargo.status().expect("cargo can be started");
    assert!(
        status.success(),
        "building the guest failed. It is linked statically: besides a C compiler, Rust's library for musl is \
         needed (rustup target add), or libc's static library (in libc6-dev on Debian and Ubuntu, glibc-static on \
         Fedora)"
    );

    for (variable, name) in [
        ("BRIG_GUEST", "brig-guest"),
        ("BRIG_SHIM", "brig-shim"),
        ("BRIG_TOOL", "brig-tool"),
    ] {
        let program = folder.join(&target).join("guest").join(name);
        assert!(
            is_static(&std::fs::read(&program).expect("the program that was built")),
            "{name} is linked dynamically, but must be static: a linker that was set for {target} ignores \
             `-C target-feature=+crt-static`"
        );
        println!("cargo::rustc-env={variable}={}", program.display());
    }
}

/// Cargo keeps what this program prints to itself, and this build is as long as that of many crates: who waits for it
/// at a terminal is told what is built.
fn announce() {
    if let Ok(mut terminal) = std::fs::File::options().write(true).open("/dev/tty") {
        let line = "\r\x1b[K    Building brig-guest, the program inside every sandbox\n";
        let _ = terminal.write_all(line.as_bytes());
    }
}

/// Musl, whatever Brig itself is linked with: glibc asks for the features of the CPU at every start, and in a
/// virtual machine each of its 68 questions leaves the machine, which takes half a millisecond.
fn guest_target() -> String {
    let target = var("TARGET");
    let Some(musl) = target.strip_suffix("gnu").map(|rest| format!("{rest}musl")) else {
        return target;
    };
    if has_library(&musl) {
        return musl;
    }
    println!(
        "cargo::warning=the guest is built with glibc, which makes every start slower: Rust has no library for \
         {musl} here (rustup target add {musl})"
    );
    target
}

/// Whether Rust's standard library is there for a target.
fn has_library(target: &str) -> bool {
    let asked = Command::new(var("RUSTC"))
        .args(["--print", "target-libdir", "--target", target])
        .output();
    let Some(output) = asked.ok().filter(|output| output.status.success()) else {
        return false;
    };
    let folder = String::from_utf8_lossy(&output.stdout);
    let entries = std::fs::read_dir(folder.trim_end()).into_iter().flatten();
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("libstd-"))
}

/// Position-independent, with relocations in their short form where the C library is known to read it.
fn flags(target: &str) -> Vec<&'static str> {
    let mut flags = vec!["-Ctarget-feature=+crt-static"];
    if target.ends_with("musl") {
        flags.push("-Clink-arg=-Wl,-z,pack-relative-relocs");
    }
    flags
}

fn arch(target: &str) -> &str {
    target.split('-').next().unwrap_or(target)
}

/// Whether a variable sets a linker, or a tool that one is made of.
fn is_linker(name: &str) -> bool {
    let of_a_target = name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
    let tools = ["CC_", "CXX_", "AR_", "RANLIB_"];
    of_a_target || name == "RUSTC_LINKER" || tools.iter().any(|tool| name.starts_with(tool))
}

/// Whether an executable of 64 bits, in the order of bytes of all targets, asks for no dynamic linker.
fn is_static(program: &[u8]) -> bool {
    const INTERP: u32 = 3;
    let number = |at: usize, size: usize| {
        let bytes = program.get(at..at + size)?;
        Some((bytes.iter().rev()).fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let kinds = || {
        let (offset, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let kind = |n| number(usize::try_from(offset + n * size).ok()?, 4);
        (0..count).map(kind).collect::<Option<Vec<u64>>>()
    };
    program.starts_with(b"\x7fELF\x02\x01")
        && kinds().is_some_and(|kinds| !kinds.is_empty() && !kinds.contains(&INTERP.into()))
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
