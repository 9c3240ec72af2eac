//! Checks what a container engine has set up: the guest can't change it, but refuses to run in a
//! container that is weaker than requested.

use std::io;
use std::os::fd::OwnedFd;

use brig_wire::{Container, ExpectedMount, KernelIdentity, Nonce};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::setup::network;
use crate::{Failure, Step};

/// Returns the opened listeners.
pub(crate) fn check(container: &Container) -> Result<Vec<OwnedFd>, Failure> {
    // Programs run as the same user. Only process 1 can't be killed by them.
    if !rustix::process::getpid().is_init() {
        return refuse("be process 1 of the container");
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").step("look at the user namespace")?;
    if is_root(rustix::process::geteuid().as_raw(), &map) {
        return refuse("be an ordinary user");
    }
    check_privileges()?;
    check_network()?;
    check_nonce(container.nonce.as_ref())?;
    check_mounts(&container.mounts)?;
    check_cache(container.cache.as_deref())?;
    check_storage(container.writable.as_deref())?;
    network::listen_on(&container.listeners)
}

/// Whether a user is root, or is root outside of its user namespace. In an engine without root the user who runs
/// it is root inside, which means nothing without capabilities.
fn is_root(uid: u32, map: &str) -> bool {
    let outside = map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (first, outside) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let offset = uid.checked_sub(first)?;
        (offset < numbers.next()?.ok()?).then(|| outside.saturating_add(offset))
    });
    // What is not mapped is nobody's, and should not be here.
    outside.is_none_or(|outside| outside == 0)
}

/// The engine mounts files of the owner's machine, and not of another one that has the same paths.
fn check_nonce(nonce: Option<&Nonce>) -> Result<(), Failure> {
    let Some(nonce) = nonce else {
        return Ok(());
    };
    match std::fs::read_to_string(&nonce.path) {
        Ok(found) if found == nonce.content => Ok(()),
        _ => {
            refuse("find the files of the machine that Brig runs on: the engine is on another one")
        }
    }
}

/// There is no way out of the container: no route but those of loopback, which are in another table.
fn check_network() -> Result<(), Failure> {
    match std::fs::read_to_string("/proc/net/route") {
        Ok(table) if has_route(&table) => {
            refuse("be without a network, but the engine has set one up")
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).step("look at routes"),
    }
}

fn has_route(table: &str) -> bool {
    // The first line has the titles.
    let mut routes = table.lines().skip(1);
    routes.any(|line| !line.trim().is_empty() && !line.starts_with("lo\t"))
}

/// By which the owner recognises a kernel that is not the one of the requested runtime.
pub(crate) fn kernel() -> KernelIdentity {
    let release = rustix::system::uname();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    KernelIdentity {
        release: release.release().to_string_lossy().into_owned(),
        boot_id: boot_id.map(|id| id.trim().to_owned()),
    }
}

/// The mounts are the requested ones, read-only with everything below them, and private, so that
/// nothing that the host mounts there later appears here. Not every engine ensures the last two.
fn check_mounts(mounts: &[ExpectedMount]) -> Result<(), Failure> {
    if mounts.is_empty() {
        return Ok(());
    }
    let table = brig_linux::mountinfo::read("/proc/self/mountinfo").step("look at mounts")?;
    for mount in mounts {
        let path = &mount.target;
        let found = rustix::fs::stat(path.as_str()).step(format!("look at {path}"))?;
        if (found.st_dev, found.st_ino) != mount.identity {
            return refuse(format!(
                "find in {path} what was checked: it has been replaced"
            ));
        }
        if let Some(problem) = problem_below(&table, path, mount.writable) {
            return refuse(problem);
        }
    }
    Ok(())
}

/// As in mountinfo.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

fn is_at_or_below(at: &str, path: &str) -> bool {
    let below = at.strip_prefix(path);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn problem_below(table: &str, path: &str, writable: bool) -> Option<String> {
    let path = escaped(path);
    for line in table.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(at), Some(options)) = (fields.next(), fields.next()) else {
            continue;
        };
        if !is_at_or_below(at, &path) {
            continue;
        }
        if !writable && !options.split(',').any(|option| option == "ro") {
            return Some(format!("verify that {at} is mounted read-only"));
        }
        // Optional fields end with a dash. `master` means that the mount receives mounts of the host.
        if fields
            .take_while(|field| *field != "-")
            .any(|field| field.starts_with("master:") || field.starts_with("shared:"))
        {
            return Some(format!("verify that the mount at {at} is private"));
        }
    }
    None
}

/// Programs must not be able to write there: nothing would limit how much.
fn check_cache(path: Option<&str>) -> Result<(), Failure> {
    let Some(path) = path else {
        return Ok(());
    };
    let table = brig_linux::mountinfo::read("/proc/self/mountinfo").step("look at mounts")?;
    if !is_mounted_read_only(&table, path) {
        return refuse(format!("verify that {path} is mounted read-only"));
    }
    Ok(())
}

/// Whether this is a mount, and every mount there is read-only.
fn is_mounted_read_only(table: &str, path: &str) -> bool {
    let options = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let at = fields.next()?;
        (at == path).then(|| fields.next()).flatten()
    });
    let mut options = options.peekable();
    options.peek().is_some()
        && options.all(|options| options.split(',').any(|option| option == "ro"))
}

/// File systems of the kernel: no disk has their content.
const KERNEL: [&str; 8] = [
    "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "proc", "sysfs", "tmpfs",
];

/// The engine mounts nothing else that can be written, such as a volume that the image names: nothing would limit
/// how much.
fn check_storage(writable: Option<&[String]>) -> Result<(), Failure> {
    let Some(writable) = writable else {
        return Ok(());
    };
    let table = brig_linux::mountinfo::read("/proc/self/mountinfo").step("look at mounts")?;
    match unexpected_storage(&table, writable) {
        Some(at) => refuse(format!(
            "verify that {at} is read-only: the engine mounts it, and it was not requested"
        )),
        None => Ok(()),
    }
}

fn unexpected_storage<'a>(table: &'a str, writable: &[String]) -> Option<&'a str> {
    let expected: Vec<String> = writable.iter().map(|path| escaped(path)).collect();
    let mut found = table.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(4);
        let (at, options) = (fields.next()?, fields.next()?);
        let on_disk = !KERNEL.contains(&kind.split(' ').next()?);
        (on_disk && options.split(',').any(|option| option == "rw")).then_some(at)
    });
    found.find(|at| !expected.iter().any(|path| is_at_or_below(at, path)))
}

/// No capability, and no way to gain one.
fn check_privileges() -> Result<(), Failure> {
    let sets = rustix::thread::capabilities(None).step("look at capabilities")?;
    let none = CapabilitySet::empty();
    if sets.effective != none || sets.permitted != none || sets.inheritable != none {
        return refuse("run without capabilities");
    }
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) => return refuse("run without capabilities to gain"),
            Ok(false) => {}
            // The first capability that this kernel does not know.
            Err(_) => break,
        }
    }
    match rustix::thread::no_new_privs().step("look at no_new_privs")? {
        true => Ok(()),
        false => refuse("run with no_new_privs"),
    }
}

fn refuse<T>(step: impl Into<String>) -> Result<T, Failure> {
    Err(io::Error::from(Errno::PERM)).step(step)
}

#[cfg(test)]
mod tests {
    use super::{has_route, is_mounted_read_only, is_root, problem_below, unexpected_storage};

    #[test]
    fn a_route_to_elsewhere_is_found() {
        let titles = "Iface\tDestination\tGateway \tFlags\tRefCnt\n";
        let with = |line: &str| has_route(&format!("{titles}{line}"));
        assert!(!has_route("") && !with("") && !with("lo\t0000007F\t00000000\t0001\t0\n"));
        assert!(with("eth0\t00000000\t010011AC\t0003\t0\n"));
    }

    const TABLE: &str = "\
30 22 254:16 / /data ro,nosuid - xfs /dev/vdb rw
31 30 0:40 / /data/below rw - tmpfs tmpfs rw
32 22 254:17 / /database rw - xfs /dev/vdb rw
33 22 254:18 / /sealed ro,relatime - xfs /dev/vdc rw
34 22 254:18 / /a\\040name ro,relatime master:7 - xfs /dev/vdc rw
35 22 254:18 / /peer rw,relatime shared:7 - xfs /dev/vdc rw
";

    #[test]
    fn root_is_who_is_root_outside() {
        let all = "         0          0 4294967295\n";
        assert!(is_root(0, all));
        assert!(!is_root(1000, all) && !is_root(65534, all));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(!is_root(0, rootless) && !is_root(65534, rootless));
        // One that maps root to another id, and one that can't be read.
        assert!(is_root(5, "5 0 1\n0 1000 1\n"));
        assert!(is_root(65534, "0 1000 1\n") && is_root(0, "") && is_root(7, "x y z\n"));
    }

    #[test]
    fn a_cache_is_a_read_only_mount() {
        assert!(is_mounted_read_only(TABLE, "/sealed"));
        assert!(!is_mounted_read_only(TABLE, "/peer"));
        assert!(!is_mounted_read_only(TABLE, "/missing"));
        let twice = format!("{TABLE}36 22 254:18 / /sealed rw - xfs /dev/vdc rw\n");
        assert!(!is_mounted_read_only(&twice, "/sealed"));
    }

    #[test]
    fn storage_that_nobody_asked_for_is_found() {
        let table = "\
200 176 0:41 / / ro,relatime master:5 - overlay overlay rw,lowerdir=/l/A
201 200 0:44 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
202 200 0:45 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
219 200 7:1 /containers/1/hosts /etc/hosts ro,relatime - ext4 /dev/loop1 rw
220 200 7:1 /home /a\\040name rw,relatime - ext4 /dev/loop1 rw
221 220 7:2 /more /a\\040name/more rw,relatime - xfs /dev/loop2 rw
";
        let found = |table: &str, writable: &[&str]| {
            let writable: Vec<String> = writable.iter().map(|path| (*path).to_owned()).collect();
            unexpected_storage(table, &writable).map(str::to_owned)
        };
        assert_eq!(found(table, &["/a name"]), None);
        assert_eq!(found(table, &["/a"]).as_deref(), Some("/a\\040name"));
        for added in [
            "217 200 7:1 /volumes/vv/_data /vvv rw,relatime master:3 - ext4 /dev/loop1 rw",
            // As gVisor shows it.
            "11 8 0:10 / /vvv rw  - 9p none rw,trans=fd,rfdno=5",
        ] {
            let table = format!("{table}{added}\n");
            assert_eq!(found(&table, &["/a name"]).as_deref(), Some("/vvv"));
        }
        let open = table.replace(" / / ro,", " / / rw,");
        assert_eq!(found(&open, &["/a name"]).as_deref(), Some("/"));
    }

    #[test]
    fn what_an_engine_left_open_is_found() {
        let problem = |path: &str, writable| problem_below(TABLE, path, writable);
        assert!(problem("/data", false).is_some_and(|text| text.contains("/data/below")));
        assert_eq!(problem("/data", true), None);
        assert_eq!(problem("/sealed", false), None);
        assert!(problem("/a name", false).is_some_and(|text| text.contains("private")));
        assert!(problem("/peer", true).is_some_and(|text| text.contains("private")));
    }
}
