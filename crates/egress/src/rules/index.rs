//! Finds the first rule for a host without testing the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use brig_hosts::{Host, Pattern, Rule};

use super::LayerKind;

#[derive(Debug)]
pub(super) struct IndexedRule {
    pub layer: LayerKind,
    pub rule: Arc<Rule>,
}

/// Rules by their pattern. Numbers are indexes of `entries`.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<IndexedRule>,
    names: HashMap<String, Vec<u32>>,
    below: HashMap<String, Vec<u32>>,
    addresses: HashMap<IpAddr, Vec<u32>>,
    /// One map for each prefix length that occurs.
    networks: Vec<Networks>,
}

#[derive(Debug)]
struct Networks {
    ipv4: bool,
    bits: u8,
    rules: HashMap<IpAddr, Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    Rule(&'a IndexedRule),
    /// A rule for the host, but not for this port.
    OtherPort(&'a IndexedRule),
    Nothing,
}

impl<'a> Found<'a> {
    pub(super) fn rule(self) -> Option<&'a IndexedRule> {
        match self {
            Found::Rule(entry) => Some(entry),
            _ => None,
        }
    }

    pub(super) fn any(self) -> Option<&'a IndexedRule> {
        match self {
            Found::Rule(entry) | Found::OtherPort(entry) => Some(entry),
            Found::Nothing => None,
        }
    }
}

impl Index {
    pub(super) fn new<'a>(rules: impl Iterator<Item = (LayerKind, &'a Rule)>) -> Self {
        let mut index = Self::default();
        for (layer, rule) in rules {
            let place = u32::try_from(index.entries.len()).unwrap_or(u32::MAX);
            match rule.pattern() {
                Pattern::Name(name) => put(&mut index.names, name.to_string(), place),
                Pattern::Below(name) => put(&mut index.below, name.to_string(), place),
                Pattern::Address(address) => put(&mut index.addresses, *address, place),
                Pattern::Network { first, bits } => {
                    let (ipv4, bits) = (first.is_ipv4(), *bits);
                    let mut known = index.networks.iter();
                    let known = known.position(|own| (own.ipv4, own.bits) == (ipv4, bits));
                    let at = known.unwrap_or_else(|| {
                        let rules = HashMap::new();
                        index.networks.push(Networks { ipv4, bits, rules });
                        index.networks.len() - 1
                    });
                    put(&mut index.networks[at].rules, *first, place);
                }
            }
            index.entries.push(IndexedRule {
                layer,
                rule: Arc::new(rule.clone()),
            });
        }
        index
    }

    /// The first rule for this host and port.
    pub(super) fn find(&self, host: &Host, fits: impl Fn(&Rule) -> bool) -> Found<'_> {
        let mut first: Option<u32> = None;
        let mut other: Option<u32> = None;
        let mut look = |places: Option<&Vec<u32>>| {
            for place in places.into_iter().flatten() {
                let best = match fits(&self.entries[*place as usize].rule) {
                    true => &mut first,
                    false => &mut other,
                };
                *best = Some(best.map_or(*place, |own| own.min(*place)));
            }
        };
        match host {
            Host::Name(name) => {
                look(self.names.get(name.as_str()));
                if !self.below.is_empty() {
                    name.parents()
                        .for_each(|parent| look(self.below.get(parent)));
                }
            }
            Host::Address(address) => {
                look(self.addresses.get(address));
                let same = |own: &&Networks| own.ipv4 == address.is_ipv4();
                for own in self.networks.iter().filter(same) {
                    look(own.rules.get(&Pattern::first_of(*address, own.bits)));
                }
            }
        }
        match (first, other) {
            (Some(place), _) => Found::Rule(&self.entries[place as usize]),
            (None, Some(place)) => Found::OtherPort(&self.entries[place as usize]),
            (None, None) => Found::Nothing,
        }
    }
}

fn put<K: Eq + Hash>(map: &mut HashMap<K, Vec<u32>>, key: K, place: u32) {
    map.entry(key).or_default().push(place);
}
