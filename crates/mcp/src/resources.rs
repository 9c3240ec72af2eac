//! What can be read: the policy, what enforces it, files of sessions, and the whole output of executions.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use brig_sandbox::backend::FileKind;
use brig_sandbox::{ExecutionId, Report};
use rmcp::ErrorData;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use crate::arguments::SessionName;
use crate::files::{self, Listing};
use crate::server::Server;
use crate::text;

const POLICY: &str = "brig://policy";
const DOCTOR: &str = "brig://doctor";
const SESSION: &str = "brig://session/";
const EXECUTION: &str = "brig://execution/";
/// How many files of one session are listed.
const LISTED: usize = 100;
/// Of how many executions the output is kept, and how much in all.
const EXECUTIONS: usize = 32;
const BYTES: usize = 16 * 1024 * 1024;

/// The output of the newest executions, as far as their reports have it.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    id: ExecutionId,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Outputs {
    pub(crate) fn keep(&self, report: Report) {
        let outcome = report.outcome;
        let new = Kept {
            id: report.execution_id,
            stdout: outcome.stdout.bytes,
            stderr: outcome.stderr.bytes,
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(new);
        let size = |kept: &VecDeque<Kept>| -> usize {
            kept.iter()
                .map(|one| one.stdout.len() + one.stderr.len())
                .sum()
        };
        while kept.len() > EXECUTIONS || (kept.len() > 1 && size(&kept) > BYTES) {
            kept.pop_front();
        }
    }

    fn get(&self, id: &str, stream: &str) -> Option<Vec<u8>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|one| one.id.as_str() == id)?;
        match stream {
            "stdout" => Some(found.stdout.clone()),
            "stderr" => Some(found.stderr.clone()),
            _ => None,
        }
    }
}

pub(crate) fn output_uri(id: &ExecutionId, stream: &str) -> String {
    format!("{EXECUTION}{id}/{stream}")
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{SESSION}{{session}}/{{+path}}"), "file")
            .with_description("A file in the workspace of a session"),
        ResourceTemplate::new(format!("{EXECUTION}{{execution}}/{{stream}}"), "output")
            .with_description("stdout or stderr of one of the newest executions"),
    ]
}

impl Server {
    /// The two that there always are, and the files directly in the workspace of each session.
    pub(crate) async fn resources(&self) -> Vec<Resource> {
        let mut all = vec![
            Resource::new(POLICY, "policy")
                .with_description("The policy that everything runs under, and its limits")
                .with_mime_type("application/json"),
            Resource::new(DOCTOR, "doctor")
                .with_description("What is enforced here, and by what")
                .with_mime_type("text/plain"),
        ];
        for id in self.sessions.names() {
            let Some(open) = self.sessions.unused(&id).await else {
                continue;
            };
            let listing = Listing::of(&open.session, ".", 1, LISTED).await;
            let entries = listing.unwrap_or_default().entries.into_iter();
            let files = entries.filter(|entry| entry.kind == FileKind::File && !entry.escaped);
            all.extend(files.map(|entry| {
                let uri = format!("{SESSION}{id}/{}", encoded(&entry.path));
                Resource::new(uri, entry.path).with_size(entry.size)
            }));
        }
        all
    }

    pub(crate) async fn resource(&self, uri: &str) -> Result<ResourceContents, ErrorData> {
        let unknown =
            || ErrorData::resource_not_found(format!("no resource {}", text::line(uri)), None);
        if uri == POLICY {
            let text = ResourceContents::text(self.policy.clone(), uri);
            return Ok(text.with_mime_type("application/json"));
        }
        if uri == DOCTOR {
            return Ok(ResourceContents::text(self.enforcement.clone(), uri));
        }
        if let Some((id, stream)) = uri
            .strip_prefix(EXECUTION)
            .and_then(|rest| rest.split_once('/'))
        {
            let bytes = self.outputs.get(id, stream).ok_or_else(unknown)?;
            return Ok(ResourceContents::text(text::lines(&bytes), uri));
        }
        let file = uri
            .strip_prefix(SESSION)
            .and_then(|rest| rest.split_once('/'));
        let (name, path) = file.ok_or_else(unknown)?;
        let name = SessionName::try_from(name.to_owned()).map_err(|_| unknown())?;
        let path = decoded(path).ok_or_else(unknown)?;
        let used = self
            .sessions
            .existing(name.id())
            .await
            .ok_or_else(unknown)?;
        let read = files::read(used.session(), &path, 0, files::MOST_READ).await;
        let part = read
            .map_err(|error| ErrorData::resource_not_found(text::line(&error.to_string()), None))?;
        if part.is_truncated() {
            let problem = format!(
                "it has {} bytes; read a part of it with read_file",
                part.size
            );
            return Err(ErrorData::invalid_params(problem, None));
        }
        Ok(match text::exact(&part.bytes) {
            Some(text) => ResourceContents::text(text, uri),
            None => {
                let kind = crate::images::kind(&part.bytes).unwrap_or("application/octet-stream");
                let blob = ResourceContents::blob(BASE64_STANDARD.encode(&part.bytes), uri);
                blob.with_mime_type(kind)
            }
        })
    }
}

/// A path in a URI: `%`, spaces and all that is not ASCII are encoded.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(one).collect()
}

/// `None` if it is not one that [`encoded`] could have made, but for characters that it would encode.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_a_uri() {
        for path in ["a.txt", "a b/%é?#.txt", "100%"] {
            assert_eq!(decoded(&encoded(path)).as_deref(), Some(path));
        }
        assert_eq!(encoded("a b"), "a%20b");
        assert_eq!(decoded("%2"), None);
        assert_eq!(decoded("%zz"), None);
        assert_eq!(decoded("%ff"), None);
    }
}
