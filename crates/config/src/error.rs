use std::io;
use std::path::Path;

use brig_policy::{Problem, Problems};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{file}`: {source}")]
    Unreadable { file: String, source: io::Error },
    #[error("`{file}` is not sound; nothing was run or changed")]
    Unsound {
        file: String,
        problems: Vec<Problem>,
    },
    #[error("cannot write `{file}`: {source}")]
    Unwritable { file: String, source: io::Error },
    #[error("another program has been changing `{0}` for 30 seconds")]
    Busy(String),
    #[error("`{0}` is written in a way in which it can't be changed without losing something")]
    Shape(String),
    #[error("`{0}` is neither an alias nor a file")]
    NoAgent(String),
    #[error("{0}")]
    Alias(String),
    /// The caller could not keep a record of the change.
    #[error("{0}")]
    Unrecorded(String),
}

impl Error {
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        let file = path.display().to_string();
        Error::Unreadable { file, source }
    }

    pub(crate) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = path.display().to_string();
        move |source| Error::Unwritable { file, source }
    }

    pub(crate) fn unsound(file: &str, problems: Problems) -> Self {
        Error::Unsound {
            file: file.to_owned(),
            problems: problems.0,
        }
    }

    /// Stable.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Unreadable { .. } => "config.unreadable",
            Error::Unsound { .. } => "config.invalid",
            Error::Unwritable { .. } => "config.unwritable",
            Error::Busy(_) => "config.busy",
            Error::Shape(_) => "config.shape",
            Error::NoAgent(_) => "agent.unknown",
            Error::Alias(_) => "input.alias",
            Error::Unrecorded(_) => "audit.unwritable",
        }
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Unreadable { .. } => Some("mend or remove the file: without it nothing is run"),
            Error::Busy(_) => Some("try again"),
            Error::Shape(_) => Some("change it by hand, or write its lists one entry to a line"),
            Error::NoAgent(_) => {
                Some("give the path of an agent file, or `brig alias add NAME PATH`")
            }
            Error::Alias(_) => Some(
                "a name is a letter or digit, then letters, digits, `-` and `_`, at most 64 in all",
            ),
            Error::Unsound { .. } | Error::Unwritable { .. } | Error::Unrecorded(_) => None,
        }
    }
}
