use std::io;
use std::path::Path;

use brig_reason::ReasonCode;
use brig_schema::{Problem, Problems};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{file}`: {source}")]
    Unreadable { file: String, source: io::Error },
    #[error("`{file}` is invalid; nothing was run or changed")]
    Invalid {
        file: String,
        problems: Vec<Problem>,
    },
    #[error("cannot write `{file}`: {source}")]
    Unwritable { file: String, source: io::Error },
    #[error("`{file}` is changed, but it may be lost if the machine loses power: {source}")]
    Unconfirmed { file: String, source: io::Error },
    #[error("another program has been changing `{0}` for 30 seconds")]
    Busy(String),
    #[error("`{0}` uses a YAML style that cannot be edited without loss")]
    Shape(String),
    #[error("`{0}` is neither an alias nor a file")]
    NoAgent(String),
    #[error("the agent file `{file}` {wants}, which only you may decide")]
    Untrusted { file: String, wants: String },
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

    pub(crate) fn invalid(file: &str, problems: Problems) -> Self {
        Error::Invalid {
            file: file.to_owned(),
            problems: problems.0,
        }
    }

    /// Stable.
    pub fn code(&self) -> ReasonCode {
        match self {
            Error::Unreadable { .. } => ReasonCode::ConfigUnreadable,
            Error::Invalid { .. } => ReasonCode::ConfigInvalid,
            Error::Unwritable { .. } => ReasonCode::ConfigUnwritable,
            Error::Unconfirmed { .. } => ReasonCode::OperationIncomplete,
            Error::Busy(_) => ReasonCode::ConfigBusy,
            Error::Shape(_) => ReasonCode::ConfigShape,
            Error::NoAgent(_) => ReasonCode::AgentUnknown,
            Error::Untrusted { .. } => ReasonCode::AgentUntrusted,
            Error::Alias(_) => ReasonCode::InputAlias,
            Error::Unrecorded(_) => ReasonCode::AuditUnwritable,
        }
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Unreadable { .. } => Some("fix or remove the file: without it nothing is run"),
            Error::Busy(_) => Some("try again"),
            Error::Shape(_) => Some("edit it by hand, or write its lists with one entry per line"),
            Error::NoAgent(_) => {
                Some("give the path of an agent file, or add an alias: `brig alias add NAME PATH`")
            }
            Error::Untrusted { .. } => Some(
                "read the file, then run `brig agent trust FILE`; or decide for this run: --sandbox, \
                 --sandbox=false, --allow, --mount, --env, or a limit",
            ),
            Error::Alias(_) => Some(
                "a name is a letter or digit, then letters, digits, `-` and `_`, at most 64 in all",
            ),
            Error::Invalid { .. }
            | Error::Unwritable { .. }
            | Error::Unconfirmed { .. }
            | Error::Unrecorded(_) => None,
        }
    }
}
