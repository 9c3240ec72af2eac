//! Builds the guest as one static program, whatever profile Brig itself is built with.

use std::env;
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

    let target = var("TARGET");
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
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    // The guest is built the same way under every tool that drives this build.
    for name in [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "building the guest failed");

    for (variable, name) in [("BRIG_GUEST", "brig-guest"), ("BRIG_SHIM", "brig-shim")] {
        let program = folder.join(&target).join("guest").join(name);
        println!("cargo::rustc-env={variable}={}", program.display());
    }
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
