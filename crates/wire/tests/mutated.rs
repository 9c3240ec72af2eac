//! Feeds mutated messages to both sides. The same entry functions are fuzzed with coverage in
//! `fuzz/`; this needs no special compiler and runs with every test.
#![allow(
    clippy::cast_possible_truncation,
    reason = "any part of a random number is one"
)]

#[path = "../../../fuzz/entry.rs"]
mod entry;

use brig_wire::{
    Base, Confine, Container, DeniedPrograms, Exec, Exit, ExpectedMount, FileInfo, FileKind,
    FromGuest, GUEST_CHANNEL, Hello, HostDirectory, KernelIdentity, Kind, ListenerSpec, Mediation,
    MountSource, Network, Nonce, Rlimit, RootSource, Setup, SetupStep, Spawn, ToGuest, Transport,
    Tree, Unreachable, Usage, VERSION, Writers, encode_into, to_bytes,
};

const INPUTS: usize = 100_000;

#[test]
fn a_guest_can_say_anything() {
    let seeds = from_guest_seeds();
    assert_eq!(
        entry::receive::<FromGuest>(&seeds.concat()),
        15,
        "the seeds themselves are understood"
    );
    mutate(&seeds, 1, entry::receive::<FromGuest>);
}

#[test]
fn the_guest_bears_anything() {
    let seeds = to_guest_seeds();
    assert_eq!(
        entry::receive::<ToGuest>(&seeds.concat()),
        13,
        "the seeds themselves are understood"
    );
    mutate(&seeds, 2, entry::receive::<ToGuest>);
}

/// A fixed seed: a failure repeats.
fn mutate(seeds: &[Vec<u8>], seed: u64, receive: fn(&[u8]) -> usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..INPUTS {
        let mut input = seeds[random.below(seeds.len())].clone();
        if random.below(4) == 0 {
            input.extend_from_slice(&seeds[random.below(seeds.len())]);
        }
        for _ in 0..=random.below(4) {
            random.change(&mut input);
        }
        if receive(&input) > 0 {
            accepted += 1;
        } else {
            refused += 1;
        }
    }
    // Neither all refused at once nor all let through: the mutations reach the inside.
    assert!(
        accepted > INPUTS / 50 && refused > INPUTS / 50,
        "{accepted} {refused}"
    );
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        if input.is_empty() {
            return input.push(self.next() as u8);
        }
        let at = self.below(input.len());
        match self.below(7) {
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = self.next() as u8,
            2 => input[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
            3 => input.truncate(at),
            4 => input.insert(at, self.next() as u8),
            5 => {
                input.remove(at);
            }
            _ => {
                let end = at + self.below(input.len() - at) + 1;
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
        }
    }
}

fn framed<M: serde::Serialize>(message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(
        &mut out,
        Kind::Control,
        0,
        &to_bytes(message).expect("the seeds are short"),
    );
    out
}

fn streams() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    encode_into(&mut out, Kind::Data, 7, b"some output\n");
    encode_into(&mut out, Kind::Credit, 7, &4096u32.to_le_bytes());
    encode_into(&mut out, Kind::End, 7, &[]);
    vec![out]
}

fn from_guest_seeds() -> Vec<Vec<u8>> {
    let entries = vec![
        FileInfo {
            name: b"a".to_vec(),
            kind: FileKind::File,
            size: 5,
            mode: 0o644,
        },
        FileInfo {
            name: vec![0xff, 0xfe],
            kind: FileKind::Other,
            size: u64::MAX,
            mode: 0o777,
        },
    ];
    let exit = Exit {
        out_of_time: false,
        id: 3,
        status: 0x100,
        cpu_microseconds: 12_345,
        peak_memory_bytes: 1 << 33,
        stdout_total: 17,
        stderr_total: 0,
    };
    let mut seeds: Vec<_> = [
        FromGuest::Ready {
            version: VERSION,
            kernel: Some(KernelIdentity {
                release: "6.1.0".into(),
                boot_id: Some("0d3e".into()),
            }),
        },
        FromGuest::SetupFailed {
            step: "mount".into(),
            errno: 1,
        },
        FromGuest::SpawnFailed {
            id: 1,
            step: "exec".into(),
            errno: 2,
        },
        FromGuest::Exited(exit),
        FromGuest::Checked {
            id: 9,
            files: vec![(1, (1_700_000_000, 5)), (u64::MAX, (i64::MIN, 0))],
        },
        FromGuest::Found {
            id: 9,
            paths: vec![None, Some("/usr/bin/python3".into())],
        },
        FromGuest::Usage(Usage {
            memory_kills: 1,
            processes: 7,
            ..Usage::default()
        }),
        FromGuest::Accepted {
            listener: 2,
            address: ([127, 128, 0, 1], 443),
            channel: GUEST_CHANNEL | 1,
        },
        FromGuest::Datagram {
            listener: 1,
            from: ([127, 0, 0, 1], 5353),
            bytes: vec![0; 40],
        },
        FromGuest::Exec(Box::new(Exec {
            id: 1,
            process: 7,
            program: "az".into(),
            path: Some("/usr/bin/az".into()),
            arguments: vec!["az".into(), "account".into()],
            denied_file: Some("/usr/bin/az".into()),
            ..Exec::default()
        })),
        FromGuest::Unreachable(Box::new(Unreachable {
            transport: Transport::Udp,
            to: Some(([192, 0, 2, 1], 53).into()),
            count: 7,
            query: vec![0; 30],
        })),
        FromGuest::Unreachable(Box::new(Unreachable {
            transport: Transport::Tcp,
            to: None,
            count: 1,
            query: Vec::new(),
        })),
        FromGuest::Done {
            id: 4,
            bytes: 1 << 40,
        },
        FromGuest::Failed {
            id: 5,
            step: "open".into(),
            errno: 40,
        },
        FromGuest::Listing {
            id: 6,
            entries,
            last: true,
        },
    ]
    .iter()
    .map(framed)
    .collect();
    seeds.extend(streams());
    seeds
}

fn to_guest_seeds() -> Vec<Vec<u8>> {
    let path = || MountSource::Path {
        path: "/usr".into(),
        identity: Some((8, 2)),
    };
    let setup = Setup {
        uid: 65534,
        gid: 65534,
        drop_groups: false,
        hostname: "brig".into(),
        disk_bytes: 1 << 28,
        disk_inodes: 1 << 16,
        read_only_root: true,
        rootfs: Some(MountSource::Mount(9)),
        steps: vec![
            SetupStep::Directory {
                path: "/etc".into(),
                mode: 0o755,
            },
            SetupStep::File {
                path: "/etc/hosts".into(),
                content: b"127.0.0.1 localhost\n".to_vec(),
            },
            SetupStep::Symlink {
                path: "/bin".into(),
                target: "usr/bin".into(),
            },
            SetupStep::Bind {
                source: path(),
                target: "/usr".into(),
                writable: false,
            },
            SetupStep::Device {
                path: "/dev/null".into(),
            },
            SetupStep::Private {
                name: "tmp".into(),
                target: "/tmp".into(),
                mode: 0o1777,
            },
            SetupStep::Overlay {
                lower: vec![path()],
                name: "w".into(),
                target: "/workspace".into(),
            },
            SetupStep::Copy {
                source: path(),
                name: "w".into(),
                target: "/workspace".into(),
            },
            SetupStep::Hide {
                path: b"/workspace/.ssh".to_vec(),
                identity: (1, 2),
            },
            SetupStep::Pin {
                path: b"/workspace/.config".to_vec(),
                identity: (1, 2),
            },
            SetupStep::Pts,
        ],
        network: Network {
            address: Some([198, 18, 0, 0]),
            free: 32,
            listeners: vec![ListenerSpec {
                transport: Transport::Udp,
                address: [127, 0, 0, 1],
                port: 53,
            }],
        },
        hidden_proc: vec!["kcore".into()],
        read_only_proc: vec!["sys".into()],
        denied: Some(DeniedPrograms {
            shim: 0,
            directory: "/run/denied".into(),
            names: vec!["az".into()],
            covered: vec!["/usr/bin/curl".into()],
            elsewhere: vec!["/tmp/tool".into()],
        }),
    };
    let hello = Hello {
        version: VERSION,
        confine: Confine {
            seccomp: vec![0x20, 0x15, 0x06],
            rlimits: vec![Rlimit {
                resource: 6,
                value: 256,
            }],
            writable: vec!["/workspace".into()],
            landlock: 4,
            executable: Some(vec!["/usr/bin/python3".into()]),
            notify: vec![7, 8],
            watches_commands: true,
            mediation: Mediation::Relayed,
            host_directories: vec![HostDirectory {
                path: "/workspace".into(),
                writable: true,
            }],
        },
        root: RootSource::Setup(setup.clone().into()),
        workspace: "/workspace".into(),
    };
    let spawn = Spawn {
        timeout: std::time::Duration::from_secs(5),
        id: 1,
        argv: vec!["/bin/echo".into(), "hello".into()],
        env: vec!["PATH=/usr/bin".into()],
        cwd: "/app".into(),
        otherwise: Some("/workspace".into()),
        stdin: Some(5),
        stdout: 6,
        stderr: 7,
        terminal: Some((24, 80)),
        output_limit: 1 << 20,
        scratch: Some("x1".into()),
        beside: Some("/script".into()),
    };
    let inside = Hello {
        root: RootSource::Container(Box::new(Container {
            mounts: vec![ExpectedMount {
                target: "/input".into(),
                identity: (1, 2),
                writable: false,
            }],
            listeners: Vec::new(),
            denied: setup.denied.clone(),
            own_kernel: true,
            own_group: true,
            pool: [127, 64, 0, 0],
            max_silence: std::time::Duration::from_secs(60),
            seal: [9; 16],
            nonce: Some(Nonce {
                path: "/.brig/nonce".into(),
                content: "1b9d".into(),
            }),
            writable: Some(vec!["/output".into()]),
            cache: Some("/.brig/cache".into()),
        })),
        ..hello.clone()
    };
    let mut seeds: Vec<_> = [
        ToGuest::Hello(Box::new(hello)),
        ToGuest::Hello(Box::new(inside)),
        ToGuest::Save {
            writers: Writers::Later,
            id: 5,
            channel: 10,
            tree: Tree::Workspace,
            fresh: true,
        },
        ToGuest::Fill {
            id: 6,
            channel: 11,
            tree: Tree::Root,
        },
        ToGuest::Find {
            id: 7,
            names: vec!["python3".into()],
            directories: vec!["/usr/bin".into()],
        },
        ToGuest::Datagram {
            listener: 1,
            from: ([127, 0, 0, 1], 5353),
            bytes: vec![0; 40],
        },
        ToGuest::Spawn(Box::new(spawn)),
        ToGuest::Kill { id: 1 },
        ToGuest::Signal { id: 1, signal: 15 },
        ToGuest::Resize {
            id: 1,
            rows: 24,
            columns: 80,
        },
        ToGuest::Put {
            id: 2,
            base: Base::Run,
            path: "a/b".into(),
            mode: 0o600,
            channel: 8,
        },
        ToGuest::Get {
            id: 3,
            path: "out.txt".into(),
            channel: 9,
        },
        ToGuest::List {
            id: 4,
            path: ".".into(),
        },
    ]
    .iter()
    .map(framed)
    .collect();
    seeds.extend(streams());
    seeds
}
