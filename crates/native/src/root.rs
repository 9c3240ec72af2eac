//! What the root of a sandbox consists of.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use brig_sandbox::plan::CheckedMount;
use brig_sandbox::{Error, Plan, Result};
use brig_wire::{MountSource, Setup, SetupStep};

use crate::backend::WORKSPACE;
use crate::detached::Detached;
use crate::host::Host;
use crate::identity::{INSIDE, Identity};
use crate::interpreters::FoundInterpreters;

pub(crate) const SYSTEM: [&str; 7] = [
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

/// Bytes of the disk limit per inode.
const BYTES_PER_INODE: u64 = 4096;

pub(crate) const VAR_TMP: &str = "/var/tmp";

/// Whether /var/tmp is a directory inside: nothing can be mounted at or below a link.
pub(crate) fn has_own_var_tmp(plan: &Plan, found: &FoundInterpreters) -> bool {
    let mut mounts = plan.mounts().iter().chain(found.folders());
    mounts.any(|mount| mount.target.starts_with(VAR_TMP))
}

/// The plan for the guest, and mounts that it inherits because only root could make them.
pub(crate) fn plan(
    host: &Host,
    plan: &Plan,
    identity: &Identity,
    detached: Detached,
    found: &FoundInterpreters,
) -> Result<(Setup, Vec<OwnedFd>)> {
    let mut builder = Builder {
        overlay_layers: host.overlay_layers,
        steps: Vec::new(),
        inherited: Vec::new(),
    };
    let rootfs = match plan.rootfs() {
        Some(rootfs) => {
            builder.resolver();
            Some(checked(rootfs)?)
        }
        None => {
            builder.system(plan.read_only_root())?;
            builder.etc(plan.home())?;
            builder.resolver();
            None
        }
    };
    builder.dev();
    let own_var_tmp = has_own_var_tmp(plan, found);
    builder.private(plan, own_var_tmp, detached.workspace, detached.layers)?;
    for folder in found.folders() {
        builder.steps.push(SetupStep::Bind {
            source: checked(folder)?,
            target: utf8(&folder.target)?,
            writable: false,
        });
        builder.hide(folder);
    }
    let mut opened = detached.mounts.into_iter();
    for mount in plan.mounts() {
        builder.mount(mount, opened.next().flatten())?;
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
        drop_groups: identity.is_root(),
        hostname: "brig".into(),
        disk_bytes,
        disk_inodes: (disk_bytes / BYTES_PER_INODE).max(4096),
        read_only_root: plan.read_only_root(),
        rootfs,
        steps: builder.steps,
        network: crate::network::plan(plan),
        hidden_proc: listed("hide "),
        read_only_proc: listed("read-only "),
        denied: None,
    };
    Ok((setup, builder.inherited))
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
    steps: Vec<SetupStep>,
    inherited: Vec<OwnedFd>,
}

impl Builder {
    /// The host's system directories, or the links in their place on a merged /usr.
    fn system(&mut self, read_only: bool) -> Result<()> {
        for path in SYSTEM {
            let Ok(meta) = fs::symlink_metadata(path) else {
                continue;
            };
            if meta.is_symlink() {
                let target =
                    fs::read_link(path).map_err(|e| Error::io(format!("read {path}"), e))?;
                self.steps.push(SetupStep::Symlink {
                    path: path.into(),
                    target: utf8(&target)?,
                });
            } else if read_only {
                self.bind(path)?;
            } else {
                self.steps.push(SetupStep::Overlay {
                    lower: vec![plain(path)],
                    name: format!("system{}", path.replace('/', "-")),
                    target: path.into(),
                });
            }
        }
        Ok(())
    }

    fn etc(&mut self, home: &str) -> Result<()> {
        let passwd = format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\n\
             nobody:x:65534:65534:nobody:{home}:/bin/sh\n"
        );
        for path in lines(ETC) {
            let Ok(meta) = fs::symlink_metadata(path) else {
                continue;
            };
            if meta.is_symlink() {
                let target =
                    fs::read_link(path).map_err(|e| Error::io(format!("read {path}"), e))?;
                self.steps.push(SetupStep::Symlink {
                    path: path.into(),
                    target: utf8(&target)?,
                });
            } else {
                self.bind(path)?;
            }
        }
        for (path, content) in [
            ("/etc/passwd", passwd.as_str()),
            ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
            ("/etc/hosts", "127.0.0.1 localhost brig\n::1 localhost\n"),
            ("/etc/hostname", "brig\n"),
            (
                "/etc/nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files dns\n",
            ),
        ] {
            self.steps.push(SetupStep::File {
                path: path.into(),
                content: content.into(),
            });
        }
        Ok(())
    }

    /// Always ours, also in a given root: no other DNS server can be reached.
    fn resolver(&mut self) {
        self.steps.push(SetupStep::File {
            path: "/etc/resolv.conf".into(),
            content: "nameserver 127.0.0.1\n".into(),
        });
    }

    fn dev(&mut self) {
        for path in DEVICES {
            if Path::new(path).exists() {
                self.steps.push(SetupStep::Device { path: path.into() });
            }
        }
        for (path, target) in [
            ("/dev/ptmx", "pts/ptmx"),
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
        ] {
            self.steps.push(SetupStep::Symlink {
                path: path.into(),
                target: target.into(),
            });
        }
        self.steps.push(SetupStep::Pts);
    }

    /// The writable directories, all on one file system of limited size.
    fn private(
        &mut self,
        plan: &Plan,
        own_var_tmp: bool,
        workspace: Option<OwnedFd>,
        layers: Vec<OwnedFd>,
    ) -> Result<()> {
        for (name, target, mode) in [
            ("tmp", "/tmp", 0o1777),
            ("shm", "/dev/shm", 0o1777),
            ("run", "/run/brig", 0o755),
        ] {
            self.steps.push(SetupStep::Private {
                name: name.into(),
                target: target.into(),
                mode,
            });
        }
        self.steps.push(SetupStep::Directory {
            path: "/var/empty".into(),
            mode: 0o555,
        });
        self.steps.push(match own_var_tmp {
            true => SetupStep::Private {
                name: "var-tmp".into(),
                target: VAR_TMP.into(),
                mode: 0o1777,
            },
            false => SetupStep::Symlink {
                path: VAR_TMP.into(),
                target: "/tmp".into(),
            },
        });
        if let Some(mount) = plan.workspace() {
            self.steps.push(SetupStep::Private {
                name: "home".into(),
                target: plan.home().into(),
                mode: 0o700,
            });
            return self.mount(mount, workspace);
        }
        let mut opened = layers.into_iter();
        let mut sources = Vec::new();
        for layer in plan.initial().directories() {
            sources.push(match opened.next() {
                Some(tree) => self.inherit(tree),
                None => plain(&utf8(layer)?),
            });
        }
        let (name, target) = ("workspace".to_owned(), WORKSPACE.to_owned());
        self.steps.push(match sources.len() {
            0 => SetupStep::Private {
                name,
                target,
                mode: 0o755,
            },
            _ if self.overlay_layers => SetupStep::Overlay {
                lower: sources,
                name,
                target,
            },
            1 => SetupStep::Copy {
                source: sources.remove(0),
                name,
                target,
            },
            count => {
                return Err(Error::Setup {
                    step: "copy the saved files".into(),
                    problem: format!("they are in {count} layers"),
                });
            }
        });
        Ok(())
    }

    fn inherit(&mut self, tree: OwnedFd) -> MountSource {
        let index = u32::try_from(self.inherited.len()).unwrap_or(u32::MAX);
        self.inherited.push(tree);
        MountSource::Mount(index)
    }

    fn bind(&mut self, path: &str) -> Result<()> {
        let target = path.to_owned();
        self.steps.push(SetupStep::Bind {
            source: plain(path),
            target,
            writable: false,
        });
        Ok(())
    }

    /// `opened`: by root, for the guest.
    fn mount(&mut self, mount: &CheckedMount, opened: Option<OwnedFd>) -> Result<()> {
        let source = match opened {
            Some(tree) => self.inherit(tree),
            None => checked(mount)?,
        };
        let target = utf8(&mount.target)?;
        self.steps.push(SetupStep::Bind {
            source,
            target,
            writable: mount.writable,
        });
        self.hide(mount);
        Ok(())
    }

    fn hide(&mut self, mount: &CheckedMount) {
        for pinned in &mount.pinned {
            let path = mount.target.join(&pinned.path);
            self.steps.push(SetupStep::Pin {
                path: path.into_os_string().into_vec(),
                identity: (pinned.device, pinned.inode),
            });
        }
        for hidden in &mount.hidden {
            let path = mount.target.join(&hidden.path);
            self.steps.push(SetupStep::Hide {
                path: path.into_os_string().into_vec(),
                identity: (hidden.device, hidden.inode),
            });
        }
    }
}

/// Opened by the guest, which verifies that it is still what was checked.
fn checked(mount: &CheckedMount) -> Result<MountSource> {
    Ok(MountSource::Path {
        path: utf8(&mount.source)?,
        identity: Some((mount.device, mount.inode)),
    })
}

fn plain(path: &str) -> MountSource {
    MountSource::Path {
        path: path.into(),
        identity: None,
    }
}
