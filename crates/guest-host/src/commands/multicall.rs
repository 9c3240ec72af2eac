//! Programs that are many under one roof.

use std::collections::HashSet;
use std::sync::OnceLock;

pub(super) const LISTS: &str = include_str!("../../data/multicall.txt");

pub(super) struct MultiCall {
    pub names: Vec<&'static str>,
    pub applets: HashSet<&'static str>,
}

pub(super) fn all() -> &'static [MultiCall] {
    static READ: OnceLock<Vec<MultiCall>> = OnceLock::new();
    READ.get_or_init(|| {
        let paragraphs = LISTS.split("\n\n").map(|paragraph| {
            let lines = paragraph.lines().filter(|line| !line.starts_with('#'));
            lines.collect::<Vec<_>>()
        });
        paragraphs
            .filter_map(|lines| {
                let (names, applets) = lines.split_first()?;
                Some(MultiCall {
                    names: names.split_whitespace().collect(),
                    applets: applets
                        .iter()
                        .flat_map(|line| line.split_whitespace())
                        .collect(),
                })
            })
            .collect()
    })
}
