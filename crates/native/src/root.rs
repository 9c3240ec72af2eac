//! What the sandbox's root is made of.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Plan, Result};
use brig_wire::{Setup, Source, Step};

use crate::backend::WORKSPACE;
use crate::host::Host;
use crate::identity::{INSIDE, Identity};
use crate::interpreters::Found;

pub const SYSTEM: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];
const ETC: &str = include_str!("../data/etc.txt");

/// Bytes that one inode of the writable file system stands for.
const BYTES_PER_INODE: u64 = 4096;

/// The plan for the guest, and mounts that it inherits because only root could make them.
pub fn plan(
    host: &Host,
    plan: &Plan,
    identity: &Identity,
    found: &Found,
) -> Result<(Setup, Vec<OwnedFd>)> {
    let mut builder = Builder {
        overlay_layers: host.overlay_layers,
        steps: Vec::new(),
        mounts: Vec::new(),
        identity: *identity,
    };
    let rootfs = match plan.rootfs() {
        Some(rootfs) => {
            builder.resolver(plan.network().is_on());
            Some(Source::Path {
                path: utf8(rootfs)?,
                identity: None,
            })
        }
        None => {
            builder.system(plan.read_only_root())?;
            builder.etc()?;
            builder.resolver(plan.network().is_on());
            None
        }
    };
    builder.dev();
    builder.private(plan)?;
    for folder in found.folders() {
        builder.bind(folder)?;
    }
    for mount in plan.mounts() {
        builder.mount(mount)?;
    }
    let disk_bytes = plan.limits().disk_bytes.value;
    let listed = |kind: &str| -> Vec<String> {
        lines(brig_profile::PROC)
            .filter_map(|line| line.strip_prefix(kind))
            .map(|p| p.trim().to_owned())
            .collect()
    };
    let setup = Setup {
        uid: INSIDE,
        gid: INSIDE,
        drop_groups: identity.root,
        hostname: "brig".into(),
        disk_bytes,
        disk_inodes: (disk_bytes / BYTES_PER_INODE).max(4096),
        read_only_root: plan.read_only_root(),
        rootfs,
        steps: builder.steps,
        network: crate::network::plan(plan)?,
        hidden_proc: listed("hide "),
        read_only_proc: listed("read-only "),
        denied: None,
    };
    Ok((setup, builder.mounts))
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn utf8(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::InvalidConfig {
            what: "path",
            problem: format!("`{}` is not UTF-8", path.display()),
        })
}

struct Builder {
    overlay_layers: bool,
    steps: Vec<Step>,
    mounts: Vec<OwnedFd>,
    identity: Identity,
}

impl Builder {
    /// The host's system folders, and the links that stand for them where /usr holds all.
    fn system(&mut self, read_only: bool) -> Result<()> {
        for path in SYSTEM {
            let Ok(meta) = fs::symlink_metadata(path) else {
                continue;
            };
            if meta.is_symlink() {
                let target =
                    fs::read_link(path).map_err(|e| Error::io(format!("read {path}"), e))?;
                self.steps.push(Step::Symlink {
                    path: path.into(),
                    target: utf8(&target)?,
                });
            } else if read_only {
                self.bind(path)?;
            } else {
                self.steps.push(Step::Overlay {
                    lower: vec![plain(path)],
                    name: format!("system{}", path.replace('/', "-")),
                    target: path.into(),
                });
            }
        }
        Ok(())
    }

    fn etc(&mut self) -> Result<()> {
        for path in lines(ETC) {
            let Ok(meta) = fs::symlink_metadata(path) else {
                continue;
            };
            if meta.is_symlink() {
                let target =
                    fs::read_link(path).map_err(|e| Error::io(format!("read {path}"), e))?;
                self.steps.push(Step::Symlink {
                    path: path.into(),
                    target: utf8(&target)?,
                });
            } else {
                self.bind(path)?;
            }
        }
        for (path, content) in [
            (
                "/etc/passwd",
                "root:x:0:0:root:/root:/usr/sbin/nologin\n\
                nobody:x:65534:65534:nobody:/workspace:/bin/sh\n",
            ),
            ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
            ("/etc/hosts", "127.0.0.1 localhost brig\n::1 localhost\n"),
            ("/etc/hostname", "brig\n"),
            (
                "/etc/nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files dns\n",
            ),
        ] {
            self.steps.push(Step::File {
                path: path.into(),
                content: content.into(),
            });
        }
        Ok(())
    }

    /// Ours, whatever a root that was given has: nobody else could be asked. Where nobody answers,
    /// nobody is waited for: musl does not hear that it was refused.
    fn resolver(&mut self, answers: bool) {
        let patience = if answers { "" } else { "options timeout:0\n" };
        self.steps.push(Step::File {
            path: "/etc/resolv.conf".into(),
            content: format!("nameserver 127.0.0.1\n{patience}").into(),
        });
    }

    fn dev(&mut self) {
        for path in DEVICES {
            if Path::new(path).exists() {
                self.steps.push(Step::Device { path: path.into() });
            }
        }
        for (path, target) in [
            ("/dev/ptmx", "pts/ptmx"),
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
        ] {
            self.steps.push(Step::Symlink {
                path: path.into(),
                target: target.into(),
            });
        }
        self.steps.push(Step::Pts);
    }

    /// The writable places, all on the one size-capped file system.
    fn private(&mut self, plan: &Plan) -> Result<()> {
        for (name, target, mode) in [
            ("tmp", "/tmp", 0o1777),
            ("shm", "/dev/shm", 0o1777),
            ("run", "/run/brig", 0o755),
        ] {
            self.steps.push(Step::Private {
                name: name.into(),
                target: target.into(),
                mode,
            });
        }
        self.steps.push(Step::Folder {
            path: "/var/empty".into(),
            mode: 0o555,
        });
        self.steps.push(Step::Symlink {
            path: "/var/tmp".into(),
            target: "/tmp".into(),
        });
        if let Some(mount) = plan.workspace() {
            return self.mount(mount);
        }
        let (name, target) = ("workspace".to_owned(), WORKSPACE.to_owned());
        self.steps.push(match plan.layers() {
            [] => Step::Private {
                name,
                target,
                mode: 0o755,
            },
            [all] if !self.overlay_layers => Step::Copy {
                source: plain(&utf8(all)?),
                name,
                target,
            },
            layers if !self.overlay_layers => {
                return Err(Error::Setup {
                    step: "copy the saved files".into(),
                    problem: format!("they are in {} layers", layers.len()),
                });
            }
            layers => {
                let lower = layers.iter().map(|p| utf8(p).map(|p| plain(&p)));
                Step::Overlay {
                    lower: lower.collect::<Result<_>>()?,
                    name,
                    target,
                }
            }
        });
        Ok(())
    }

    fn bind(&mut self, path: &str) -> Result<()> {
        let target = path.to_owned();
        self.steps.push(Step::Bind {
            source: plain(path),
            target,
            writable: false,
        });
        Ok(())
    }

    fn mount(&mut self, mount: &CheckedMount) -> Result<()> {
        let source = if self.identity.root {
            let index = self.mounts.len() as u32;
            self.mounts
                .push(crate::detached::open(mount, &self.identity)?);
            Source::Mount(index)
        } else {
            Source::Path {
                path: utf8(&mount.source)?,
                identity: Some((mount.device, mount.inode)),
            }
        };
        let target = utf8(&mount.target)?;
        self.steps.push(Step::Bind {
            source,
            target,
            writable: mount.writable,
        });
        Ok(())
    }
}

fn plain(path: &str) -> Source {
    Source::Path {
        path: path.into(),
        identity: None,
    }
}
