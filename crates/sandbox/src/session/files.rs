//! Files in and out of the workspace.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

use super::Session;
use super::ticket::Transfer;
use crate::backend::FileEntry;
use crate::{Error, Result};

/// A file to write into a session.
pub struct Upload {
    /// Below the workspace.
    pub path: String,
    /// The permission bits.
    pub mode: u32,
    /// What is in it.
    pub content: Box<dyn AsyncRead + Send + Unpin>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Writes a file below the workspace, with the directories above it. Gives back its size.
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

    /// Writes files below the workspace, with the directories above them, and saves them together. Gives
    /// back how many bytes they have.
    ///
    /// # Errors
    ///
    /// The first that fails ends it. What was written before stays.
    pub async fn upload_all<E: From<Error>>(
        &self,
        files: impl IntoIterator<Item = Result<Upload, E>>,
    ) -> Result<u64, E> {
        let _transfer = Transfer::begin(&self.inner)?;
        let live = self.inner.live(&self.shared).await?;
        let (mut bytes, mut failed) = (0, None);
        for file in files {
            let put = async {
                let mut file = file?;
                let path = below_workspace(&file.path)?;
                let mode = file.mode & 0o777;
                let put = live.instance.put_file(path, mode, &mut file.content);
                Ok::<u64, E>(put.await?)
            };
            match put.await {
                Ok(size) => bytes += size,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.inner.save(&self.shared, &live).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(bytes),
        }
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

    /// Lists one directory of the workspace; `.` is the workspace itself.
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
