//! Files in and out of the workspace.

use tokio::io::{AsyncRead, AsyncWrite};

use super::Session;
use super::ticket::Transfer;
use crate::backend::FileEntry;
use crate::{Error, Result};

impl Session {
    /// Writes a file below the workspace, with the folders above it. Gives back its size.
    pub async fn upload(
        &self,
        path: &str,
        mode: u32,
        mut content: impl AsyncRead + Send + Unpin,
    ) -> Result<u64> {
        let path = below_workspace(path)?;
        let _transfer = Transfer::begin(&self.inner)?;
        let live = self.inner.live(&self.shared).await?;
        let size = live
            .instance
            .put_file(path, mode & 0o777, &mut content)
            .await?;
        self.inner.save(&self.shared, &live).await?;
        Ok(size)
    }

    /// Reads a regular file below the workspace. Gives back its size.
    pub async fn download(
        &self,
        path: &str,
        mut into: impl AsyncWrite + Send + Unpin,
    ) -> Result<u64> {
        let path = below_workspace(path)?;
        let _transfer = Transfer::begin(&self.inner)?;
        let live = self.inner.live(&self.shared).await?;
        live.instance.get_file(path, &mut into).await
    }

    /// Lists one folder of the workspace; `.` is the workspace itself.
    pub async fn list_files(&self, path: &str) -> Result<Vec<FileEntry>> {
        let path = below_workspace(path)?;
        let _transfer = Transfer::begin(&self.inner)?;
        let live = self.inner.live(&self.shared).await?;
        live.instance.list_files(path).await
    }
}

/// The path relative to the workspace. It may be given absolute, as the program sees it.
fn below_workspace(path: &str) -> Result<&str> {
    let refuse = |problem: &str| {
        Err(Error::File {
            path: path.escape_debug().to_string(),
            problem: problem.into(),
        })
    };
    let relative = match path.strip_prefix("/workspace") {
        Some("") => ".",
        Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => path,
    };
    let relative = if relative.is_empty() && !path.is_empty() {
        "."
    } else {
        relative
    };
    if relative.is_empty() {
        return refuse("the path is empty");
    }
    if relative.starts_with('/') {
        return refuse("it is outside the workspace");
    }
    if relative.contains('\0') {
        return refuse("a NUL byte is not allowed");
    }
    if relative.len() > 4095 {
        return refuse("the path is longer than 4095 bytes");
    }
    if relative.split('/').any(|part| part == "..") {
        return refuse("`..` is not allowed");
    }
    Ok(relative)
}

#[cfg(test)]
mod tests {
    use super::below_workspace;

    #[test]
    fn paths_stay_below_the_workspace() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "/workspace/..",
            "/workspaces",
            "a\0b",
        ] {
            assert!(below_workspace(path).is_err(), "{path:?}");
        }
        for (path, relative) in [
            ("a", "a"),
            ("a/b", "a/b"),
            (".", "."),
            ("..a", "..a"),
            ("/workspace", "."),
            ("/workspace/", "."),
            ("/workspace/a b\n", "a b\n"),
            ("/workspace//a", "a"),
        ] {
            assert_eq!(below_workspace(path).ok(), Some(relative), "{path:?}");
        }
    }
}
