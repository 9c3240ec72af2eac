//! Figures: image files in the workspace that are new or have changed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use brig_sandbox::Session;
use brig_sandbox::backend::FileKind;
use rmcp::model::ContentBlock;
use sha2::{Digest, Sha256};

use crate::files;

/// How many image files are looked at after a call, and how many come back.
const LOOKED_AT: usize = 32;
const SHOWN: usize = 4;
/// Larger ones do not come back.
const LARGEST: u64 = 2 * 1024 * 1024;

/// The images of a session that were shown, by their path.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<String, [u8; 32]>>);

/// An image of the workspace.
#[derive(Debug)]
pub(crate) struct Image {
    pub path: String,
    kind: &'static str,
    bytes: Vec<u8>,
}

impl Image {
    pub(crate) fn content(&self) -> ContentBlock {
        content(&self.bytes, self.kind)
    }
}

pub(crate) fn content(bytes: &[u8], kind: &str) -> ContentBlock {
    ContentBlock::image(BASE64_STANDARD.encode(bytes), kind)
}

impl Seen {
    /// Images directly in the workspace that were not shown before. Beyond [`SHOWN`] they come with the next
    /// call.
    pub(crate) async fn new_in(&self, session: &Session) -> Vec<Image> {
        self.take_new(session, SHOWN).await
    }

    /// Takes all images that there are for shown.
    pub(crate) async fn remember(&self, session: &Session) {
        self.take_new(session, LOOKED_AT).await;
    }

    /// What can't be read is left out: the execution has ended, and its result counts.
    async fn take_new(&self, session: &Session, most: usize) -> Vec<Image> {
        let entries = session.list_files(".").await.unwrap_or_default();
        let mut names: Vec<String> = (entries.into_iter())
            .filter(|entry| entry.kind == FileKind::File && (1..=LARGEST).contains(&entry.size))
            .filter_map(|entry| String::from_utf8(entry.raw).ok())
            .filter(|name| has_image_name(name))
            .collect();
        names.sort();
        let mut new = Vec::new();
        for path in names.into_iter().take(LOOKED_AT) {
            let Ok(found) = files::read(session, &path, 0, LARGEST).await else {
                continue;
            };
            let Some(kind) = kind(&found.bytes).filter(|_| !found.is_truncated()) else {
                continue;
            };
            let digest: [u8; 32] = Sha256::digest(&found.bytes).into();
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if new.len() < most && seen.insert(path.clone(), digest) != Some(digest) {
                new.push(Image {
                    path,
                    kind,
                    bytes: found.bytes,
                });
            }
        }
        new
    }
}

fn has_image_name(name: &str) -> bool {
    let ending = name
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase());
    let is_image = |ending: &str| ["png", "jpg", "jpeg", "gif", "webp"].contains(&ending);
    ending.is_some_and(|ending| is_image(&ending)) && crate::text::exact(name.as_bytes()).is_some()
}

/// The type of an image, by its first bytes.
pub(crate) fn kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_name_and_its_content() {
        assert!(has_image_name("a.PNG") && has_image_name(".jpeg"));
        assert!(
            !has_image_name("png") && !has_image_name("a.svg") && !has_image_name("a\u{202e}.png")
        );
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n..."), Some("image/png"));
        assert_eq!(kind(b"RIFF\0\0\0\0WEBPVP8"), Some("image/webp"));
        assert_eq!(kind(b"RIFF\0\0\0\0WAVE"), None);
        assert_eq!(kind(b""), None);
    }
}
