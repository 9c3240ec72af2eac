//! What may not be mounted, and where nothing may be mounted. Reviewed data.

/// Host directories that are refused with everything below them.
pub(super) const SOURCE_TREES: &[(&str, &str)] = &[
    ("/etc", "it contains the system configuration"),
    ("/proc", "it belongs to the kernel"),
    ("/sys", "it belongs to the kernel"),
    ("/dev", "it contains devices"),
    ("/boot", "it contains the kernel"),
    ("/efi", "it contains the boot loader"),
    ("/run", "it contains sockets of running services"),
    (
        "/usr",
        "it belongs to the system, and is already visible read-only",
    ),
    (
        "/bin",
        "it belongs to the system, and is already visible read-only",
    ),
    (
        "/sbin",
        "it belongs to the system, and is already visible read-only",
    ),
    (
        "/lib",
        "it belongs to the system, and is already visible read-only",
    ),
    (
        "/lib32",
        "it belongs to the system, and is already visible read-only",
    ),
    (
        "/lib64",
        "it belongs to the system, and is already visible read-only",
    ),
    (
        "/libx32",
        "it belongs to the system, and is already visible read-only",
    ),
    ("/var", "it contains the system state"),
    ("/tmp/.X11-unix", "it contains sockets of the desktop"),
];

/// Folders that are refused themselves; what lies below them is judged on its own.
pub(super) const SOURCE_ITSELF: &[(&str, &str)] = &[
    (
        "/tmp",
        "it contains sockets and files of other programs; use a directory below it",
    ),
    (
        "/var/tmp",
        "it contains files of other programs; use a directory below it",
    ),
];

/// Exceptions to the list above: anyone's files may live there.
pub(super) const SOURCE_HARMLESS: &[&str] = &["/var/tmp"];

/// Names that hold secrets wherever they lie, usually in a home folder. They are not mounted, and are
/// hidden in what is.
pub(super) const SECRETS: &str = "
    .ssh .gnupg .aws .azure .kube .minikube .docker .oci .password-store .terraform.d .mozilla
    .thunderbird .netrc .git-credentials .pgpass .my.cnf .npmrc .pypirc .vault-token .boto .s3cfg
    .bash_history .zsh_history .python_history .cargo/credentials .cargo/credentials.toml
    .config/gcloud .config/gh .config/hub .config/op .config/rclone .config/doctl .config/brig
    .config/google-chrome .config/chromium .config/BraveSoftware .config/containers/auth.json
    .local/share/keyrings .local/state/brig";

/// Places inside the sandbox where nothing may be mounted, nor below, nor above.
pub(super) const TARGET_TREES: &[&str] = &[
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/boot",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run/brig",
];

/// File systems that speak for the kernel, by their magic number.
pub(super) const KERNEL_FILE_SYSTEMS: &[(u64, &str)] = &[
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x0000_1cd1, "devpts"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6e73_6673, "nsfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x6265_6570, "configfs"),
    (0x1980_0202, "mqueue"),
    (0x6573_5543, "fusectl"),
    (0x0000_0187, "autofs"),
    (0x6759_6969, "rpc_pipefs"),
];
