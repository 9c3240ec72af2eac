//! A host directory or file that is to be mounted, as it is written in flags and agent files.

use std::fmt;
use std::path::PathBuf;

/// `SRC:DST[:ro|rw]`, read-only unless `rw` is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// On the host.
    pub source: PathBuf,
    /// Absolute, inside the sandbox.
    pub target: PathBuf,
    /// Whether code in the sandbox may write to it.
    pub writable: bool,
}

impl Mount {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (paths, writable) = if let Some(paths) = text.strip_suffix(":rw") {
            (paths, true)
        } else {
            (text.strip_suffix(":ro").unwrap_or(text), false)
        };
        let (source, target) = paths
            .split_once(':')
            .filter(|(source, target)| !source.is_empty() && !target.is_empty())
            .ok_or("must be SRC:DST, SRC:DST:ro or SRC:DST:rw")?;
        if target.contains(':') {
            return Err("too many `:`; after SRC:DST only `ro` or `rw` may follow".into());
        }
        if !target.starts_with('/') {
            return Err(format!(
                "the path in the sandbox must be absolute: `/{target}`"
            ));
        }
        Ok(Self {
            source: PathBuf::from(source),
            target: PathBuf::from(target),
            writable,
        })
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, target) = (self.source.display(), self.target.display());
        let mode = if self.writable {
            "writable"
        } else {
            "read-only"
        };
        write!(f, "`{source}`, {mode} as {target}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_unless_asked() {
        let mount = Mount::parse("/data:/in").unwrap();
        assert!(!mount.writable);
        assert_eq!(mount.target, PathBuf::from("/in"));
        assert!(Mount::parse("data:/out:rw").unwrap().writable);
        assert!(!Mount::parse("data:/out:ro").unwrap().writable);
        for wrong in [
            "/data",
            ":/in",
            "/data:",
            "/data:in",
            "/a:/b:rx",
            "/a:/b:/c:rw",
        ] {
            assert!(Mount::parse(wrong).is_err(), "{wrong}");
        }
    }
}
