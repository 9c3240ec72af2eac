//! The folder that mirrors what an instance holds above its layers.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::make_folder;
use crate::layers::NEXT;
use crate::{Error, Instance, Result};

/// Old or new as a whole: it is mirrored to a folder beside it, and then the two change places.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    path: PathBuf,
}

impl Head {
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub async fn save(&self, instance: &dyn Instance) -> Result<()> {
        let next = self.path.with_extension(NEXT);
        let failed = |error: io::Error| Error::io("the files of the session", error);
        // Not made again if the session was destroyed meanwhile.
        if self.path.exists() {
            make_folder(&next).map_err(failed)?;
        }
        instance.save(&next).await?;
        renameat_with(CWD, &next, CWD, &self.path, RenameFlags::EXCHANGE)
            .map_err(|error| failed(error.into()))
    }
}
