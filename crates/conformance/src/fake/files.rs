//! The files of a fake instance, in memory.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File { mode: u32, content: Vec<u8> },
}

/// By path below the workspace, without `./`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files(pub BTreeMap<String, Node>);

/// What is wrong with a request, in a few words.
pub(super) type Problem = &'static str;

impl Files {
    pub(super) fn bytes(&self) -> u64 {
        let size = |node: &Node| match node {
            Node::Directory => 0,
            Node::File { content, .. } => content.len() as u64,
        };
        self.0.values().map(size).sum()
    }

    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, Problem> {
        match self.0.get(path) {
            Some(Node::File { content, .. }) => Ok(content.clone()),
            Some(Node::Directory) => Err("it is a directory"),
            None if path == "." => Err("it is a directory"),
            None => Err("not found"),
        }
    }

    /// Replaces a file. Its directory must exist.
    pub(super) fn write(
        &mut self,
        path: &str,
        mode: u32,
        content: Vec<u8>,
        limit: u64,
    ) -> Result<(), Problem> {
        if self.is_directory(path) {
            return Err("it is a directory");
        }
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.is_directory(parent)
        {
            return Err("its directory does not exist");
        }
        let before = self.0.remove(path);
        if self.bytes() + content.len() as u64 > limit {
            self.0.extend(before.map(|node| (path.to_owned(), node)));
            return Err("no space left");
        }
        self.0.insert(path.to_owned(), Node::File { mode, content });
        Ok(())
    }

    pub(super) fn is_directory(&self, path: &str) -> bool {
        path == "." || self.0.get(path) == Some(&Node::Directory)
    }

    /// With its parents.
    pub(super) fn make_directory(&mut self, path: &str) -> Result<(), Problem> {
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            match self.0.get(&path[..end]) {
                Some(Node::File { .. }) => return Err("it is a file"),
                Some(Node::Directory) => {}
                None => {
                    self.0.insert(path[..end].to_owned(), Node::Directory);
                }
            }
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.0
            .retain(|name, _| name != path && !name.starts_with(&below));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), Problem> {
        if !self.0.contains_key(from) {
            return Err("not found");
        }
        let below = format!("{from}/");
        let all = std::mem::take(&mut self.0);
        self.0 = all
            .into_iter()
            .map(|(name, node)| match name.strip_prefix(&below) {
                _ if name == from => (to.to_owned(), node),
                Some(rest) => (format!("{to}/{rest}"), node),
                None => (name, node),
            })
            .collect();
        Ok(())
    }

    /// What is directly in a directory.
    pub(super) fn list(&self, path: &str) -> Result<Vec<(String, Node)>, Problem> {
        if !self.is_directory(path) {
            return Err("it is not a directory");
        }
        let prefix = match path {
            "." => String::new(),
            path => format!("{path}/"),
        };
        let names = self.0.iter().filter_map(|(name, node)| {
            let rest = name.strip_prefix(&prefix)?;
            (!rest.contains('/')).then(|| (rest.to_owned(), node.clone()))
        });
        Ok(names.collect())
    }

    /// Over everything in it.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (name, node) in &self.0 {
            let (mode, content): (u32, &[u8]) = match node {
                Node::Directory => (u32::MAX, b""),
                Node::File { mode, content } => (*mode, content),
            };
            for part in [name.as_bytes(), &mode.to_le_bytes(), content] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        let bytes = hash.finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
