//! Counts the network attempts of an execution: one row for each host, port, protocol and answer. The
//! first attempt of a row has its own record; the others are counted in the total of the row. So a flood
//! of attempts hides nothing, and memory and log stay bounded. Every denied host gets a first row before
//! any host gets a second one, so that a port scan hides no host.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use brig_audit::canonical::MAX;
use brig_audit::receipt::Totals;
use brig_audit::{Carried, Egress, Times};
use brig_egress::DROPPED;
use brig_hosts::{Class, Host};
use brig_reason::ReasonCode;
use jiff::Timestamp;

/// Rows of allowed attempts. When all are taken, further ones are refused: every connection has a
/// record.
const ALLOWED: usize = 16 * 1024;
/// Hosts that were denied for the same reason, of the same kind. More share a row, so that no number of
/// names hides an attempt at, for example, a metadata service.
const DENIED: usize = 1024;
/// Rows for the denied ports and protocols of one host, and of all hosts of a kind beyond the first.
/// More of a host share a row.
const PORTS: usize = 16;
const SECOND: usize = 1024;
/// Own records for attempts of one row, and of all rows together; after that, one per second.
const BURST: u32 = 20;
const ALL_BURST: u32 = 500;
const REFILL: Duration = Duration::from_secs(1);
/// A connection that moved this many bytes always has its own record.
const MUCH: u64 = 1 << 20;
/// Stands for the hosts that are counted together.
const OTHERS: &str = "(other hosts)";
/// Stands for the ports of a host that are counted together.
const ANY: &str = "any";

#[derive(Debug, Default)]
pub(super) struct Tally {
    rows: Vec<Row>,
    places: HashMap<Key, usize>,
    /// All allowed attempts are one kind.
    kinds: HashMap<Kind, KindRows>,
    decided: Budget,
    closed: Budget,
    pub totals: Totals,
}

/// What identifies a row. The code is part of it only for denials: an allowed connection may end with
/// another code.
type Key = (bool, String, u16, String, String, bool);
/// The code and the class of the address; no class for a name. Neither for allowed attempts.
type Kind = Option<(String, Option<Class>)>;

#[derive(Debug, Default)]
struct KindRows {
    rows: usize,
    /// Rows of each denied host, and how many are not the first of their host.
    hosts: HashMap<String, usize>,
    second: usize,
}

#[derive(Debug)]
struct Row {
    egress: Egress,
    /// Not the first of its host.
    second: bool,
    /// The lowest and the highest port, if this stands for several.
    ports: Option<(u16, u16)>,
    count: u64,
    ended: u64,
    carried: Carried,
    first: Timestamp,
    last: Timestamp,
    /// Which of them have their own records.
    decided_apart: u64,
    ended_apart: u64,
    decided: Budget,
    closed: Budget,
}

#[derive(Debug, Default)]
pub(super) struct Budget {
    used: u32,
    refilled: Option<Instant>,
}

impl Budget {
    pub(super) fn take(&mut self, burst: u32, now: Instant) -> bool {
        let since = *self.refilled.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_secs() / REFILL.as_secs();
        if more > 0 {
            self.used = self
                .used
                .saturating_sub(u32::try_from(more).unwrap_or(u32::MAX));
            self.refilled = Some(now);
        }
        let free = self.used < burst;
        self.used += u32::from(free);
        free
    }
}

/// There is no room for another row of allowed attempts.
#[derive(Debug)]
pub(super) struct Full;

fn key(egress: &Egress) -> Key {
    let code = match egress.allowed {
        true => String::new(),
        false => egress.code.clone(),
    };
    (
        egress.allowed,
        egress.host.clone(),
        egress.port,
        egress.protocol.clone(),
        code,
        egress.raw,
    )
}

fn kind(egress: &Egress) -> Kind {
    if egress.allowed {
        return None;
    }
    let class = match Host::parse(&egress.host) {
        Ok(Host::Address(address)) => Some(Class::of(address)),
        _ => None,
    };
    Some((egress.code.clone(), class))
}

impl Tally {
    /// Counts a decision. Returns whether it needs its own record.
    pub(super) fn decided(&mut self, egress: &Egress) -> Result<bool, Full> {
        let (at, now) = (Timestamp::now(), Instant::now());
        let (place, new) = self.place(egress, at)?;
        let Some(row) = self.rows.get_mut(place) else {
            return Err(Full);
        };
        let total = match egress.allowed {
            true => &mut self.totals.allowed,
            false => &mut self.totals.denied,
        };
        let alike = egress.times.map(|times| times.count);
        let count = overlooked(egress).or(alike).unwrap_or(1);
        *total = sum(*total, count);
        row.count = sum(row.count, count);
        row.last = at;
        if let Some((low, high)) = &mut row.ports {
            *low = egress.port.min(*low);
            *high = egress.port.max(*high);
        }
        if egress.allowed && row.egress.code != egress.code {
            // Like an earlier one, but with a detail.
            row.egress.code.clone_from(&egress.code);
            row.egress.detail = egress.detail.clone().or(row.egress.detail.take());
        }
        let apart = row.decided.take(BURST, now) && (self.decided.take(ALL_BURST, now) || new);
        if apart {
            row.decided_apart = sum(row.decided_apart, count);
        }
        Ok(apart)
    }

    /// Counts the end of an allowed attempt. Returns whether it needs its own record.
    pub(super) fn closed(&mut self, egress: &Egress) -> bool {
        let carried = egress.carried.unwrap_or(NOTHING);
        self.totals.sent = sum(self.totals.sent, carried.sent);
        self.totals.received = sum(self.totals.received, carried.received);
        let (at, now) = (Timestamp::now(), Instant::now());
        let place = self.places.get(&key(egress)).copied();
        let Some(row) = place.and_then(|place| self.rows.get_mut(place)) else {
            // It began before this execution.
            return true;
        };
        row.ended += 1;
        row.last = at;
        row.carried = Carried {
            sent: sum(row.carried.sent, carried.sent),
            received: sum(row.carried.received, carried.received),
            milliseconds: sum(row.carried.milliseconds, carried.milliseconds),
        };
        let much = sum(carried.sent, carried.received) >= MUCH;
        let apart = much || (row.closed.take(BURST, now) && self.closed.take(ALL_BURST, now));
        row.ended_apart += u64::from(apart);
        apart
    }

    /// The row of an attempt, and whether it is new.
    fn place(&mut self, egress: &Egress, at: Timestamp) -> Result<(usize, bool), Full> {
        let own = key(egress);
        if let Some(place) = self.places.get(&own) {
            return Ok((*place, false));
        }
        let of_kind = self.kinds.entry(kind(egress)).or_default();
        let mut second = false;
        let shown = if egress.allowed {
            if of_kind.rows >= ALLOWED {
                return Err(Full);
            }
            of_kind.rows += 1;
            egress.clone()
        } else if overlooked(egress).is_some() {
            egress.clone()
        } else {
            let rows = of_kind.hosts.get(&egress.host).copied();
            second = rows.is_some();
            match rows {
                None if of_kind.hosts.len() >= DENIED => others(egress),
                Some(PORTS..) => other_ports(egress),
                Some(_) if of_kind.second >= SECOND => other_ports(egress),
                _ => {
                    of_kind.second += usize::from(second);
                    *of_kind.hosts.entry(egress.host.clone()).or_default() += 1;
                    egress.clone()
                }
            }
        };
        let own = key(&shown);
        if let Some(place) = self.places.get(&own) {
            return Ok((*place, false));
        }
        let several = second && shown.protocol == ANY;
        let place = self.rows.len();
        self.places.insert(own, place);
        self.rows.push(Row {
            egress: shown,
            second,
            ports: several.then_some((egress.port, egress.port)),
            count: 0,
            ended: 0,
            carried: NOTHING,
            first: at,
            last: at,
            decided_apart: 0,
            ended_apart: 0,
            decided: Budget::default(),
            closed: Budget::default(),
        });
        Ok((place, true))
    }

    /// All rows with attempts that have no record of their own.
    pub(super) fn unrecorded_totals(&self) -> Vec<Egress> {
        let rows = self.rows.iter().filter(|row| {
            row.count != row.decided_apart
                || row.ended != row.ended_apart
                || row.egress.host == OTHERS
                || row.ports.is_some()
        });
        rows.map(Row::total).collect()
    }

    /// The most important rows, up to the given number allowed and as many denied, and how many decisions
    /// are in none of them.
    pub(super) fn listed(&self, most: usize) -> (Vec<Egress>, u64) {
        let mut chosen: Vec<usize> = Vec::new();
        for allowed in [true, false] {
            let all = self.rows.iter().enumerate();
            let of_kind = all.filter(|(_, row)| row.egress.allowed == allowed);
            let mut places: Vec<usize> = of_kind.map(|(place, _)| place).collect();
            if places.len() > most {
                let mut kinds = HashSet::new();
                // One of each kind comes first: no flood of one hides another.
                let mut rank = |place: &usize| {
                    let row = &self.rows[*place];
                    (!kinds.insert(kind(&row.egress)), row.rank())
                };
                let mut ranked: Vec<_> = places.iter().map(|at| (rank(at), *at)).collect();
                ranked.sort_unstable();
                places = ranked.into_iter().map(|(_, at)| at).take(most).collect();
            }
            chosen.extend(places);
        }
        chosen.sort_unstable();
        let listed: Vec<Egress> = chosen.iter().map(|at| self.rows[*at].total()).collect();
        let counted: u64 = chosen.iter().map(|at| self.rows[*at].count).sum();
        let all = sum(self.totals.allowed, self.totals.denied);
        (listed, all.saturating_sub(counted))
    }
}

impl Row {
    fn total(&self) -> Egress {
        let several = self
            .ports
            .map(|(low, high)| format!("other ports, from {low} to {high}"));
        Egress {
            detail: several.or_else(|| self.egress.detail.clone()),
            carried: (self.ended > 0).then_some(self.carried),
            times: Some(Times {
                count: self.count,
                first: self.first,
                last: self.last,
            }),
            ..self.egress.clone()
        }
    }

    /// Lower is more important: data that was sent out, and what no honest program tries. The first row
    /// of each host comes before any second one.
    fn rank(&self) -> (bool, u8, std::cmp::Reverse<u64>) {
        let code = &*self.egress.code;
        let rank = if *code == ReasonCode::NetworkAddress || overlooked(&self.egress).is_some() {
            0
        } else if *code == ReasonCode::NetworkBlocked || *code == ReasonCode::NetworkMismatch {
            1
        } else {
            2
        };
        (self.second, rank, std::cmp::Reverse(self.carried.sent))
    }
}

const NOTHING: Carried = Carried {
    sent: 0,
    received: 0,
    milliseconds: 0,
};

pub(super) fn sum(one: u64, other: u64) -> u64 {
    one.saturating_add(other).min(MAX)
}

/// How many packets this stands for, if they could not be read. A program can't forge this: at a limit,
/// the detail is always the gateway's own text.
fn overlooked(egress: &Egress) -> Option<u64> {
    let ours = !egress.allowed && egress.code == ReasonCode::NetworkLimit;
    if !ours || egress.detail.as_deref() != Some(DROPPED) {
        return None;
    }
    egress.host.split(' ').next()?.parse().ok()
}

/// The row that stands for all of its kind that have none.
fn others(egress: &Egress) -> Egress {
    Egress {
        allowed: egress.allowed,
        code: egress.code.clone(),
        protocol: ANY.into(),
        host: OTHERS.into(),
        detail: match Host::parse(&egress.host) {
            Ok(Host::Address(address)) => Some(format!("{} addresses", Class::of(address))),
            _ => Some("names".into()),
        },
        ..Egress::default()
    }
}

/// The row that stands for all ports of a host that have none.
fn other_ports(egress: &Egress) -> Egress {
    Egress {
        allowed: egress.allowed,
        code: egress.code.clone(),
        protocol: ANY.into(),
        host: egress.host.clone(),
        ..Egress::default()
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
