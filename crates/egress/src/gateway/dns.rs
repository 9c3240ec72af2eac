//! The DNS server of the sandbox. Answers allowed names with addresses of the pool. Queries are never
//! forwarded, so names can't carry data out.

use brig_hosts::Host;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name as DnsName, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Gateway, Stream, lock};
use crate::decision::{Decision, Protocol, Reason};

/// Seconds that an answer may be cached. Short, because rules may change.
const TTL: u32 = 5;
/// No legitimate query is longer.
const LONGEST: usize = 4096;
/// The length of an answer over UDP to a client without EDNS, and the longest one at all.
const SHORTEST: u16 = 512;
const LARGEST: u16 = 4096;
/// How many names of a message with several questions are recorded. Of the rest, only the number.
const NAMES: usize = 16;
/// The extended error (RFC 8914) and its code for "blocked".
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;

impl Gateway {
    /// The answer to one DNS message over UDP, no longer than the client accepts. `None` for what is not
    /// a query.
    pub fn answer_dns(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (query, mut answer) = self.answer_to(query)?;
        let announced = query.and_then(|query| query.edns);
        let most = announced.map_or(SHORTEST, |edns| edns.max_payload().clamp(SHORTEST, LARGEST));
        let most = usize::from(most);
        let whole = answer.to_vec().ok()?;
        if whole.len() <= most {
            return Some(whole);
        }
        // First without the explanation, then truncated: the client will ask over TCP.
        if answer.edns.is_some() {
            answer.set_edns(Edns::new());
        }
        let short = answer.to_vec().ok().filter(|short| short.len() <= most);
        short.or_else(|| answer.truncate().to_vec().ok())
    }

    /// The query, if it can be read, and the answer.
    fn answer_to(&self, query: &[u8]) -> Option<(Option<Message>, Message)> {
        let unreadable = |what: &str| {
            let reason = Reason::Malformed(what.to_owned());
            self.record_malformed("(DNS message)", Protocol::Dns, reason);
        };
        let id = query.first_chunk().map(|id| u16::from_be_bytes(*id));
        let (Some(id), ..=LONGEST) = (id, query.len()) else {
            unreadable("its length is invalid for a DNS query");
            return None;
        };
        let Ok(query) = Message::from_vec(query) else {
            unreadable("it is not a DNS message");
            let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
            return Some((None, error));
        };
        if query.metadata.message_type != MessageType::Query {
            unreadable("it is not a DNS query");
            return None;
        }
        let answer = self.answer(&query);
        Some((Some(query), answer))
    }

    fn answer(&self, query: &Message) -> Message {
        let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
        answer.metadata.recursion_desired = query.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.add_queries(query.queries.iter().cloned());
        // Recorded with the names, which may contain data that code tries to send out.
        let unoffered = |what: &str| {
            let names = query.queries.iter().take(NAMES);
            let names =
                names.map(|question| question.name().to_ascii().trim_end_matches('.').to_owned());
            let mut names: Vec<String> = names.collect();
            if names.is_empty() {
                names.push("(DNS message)".into());
            }
            let more = query.queries.len().saturating_sub(NAMES);
            for name in names {
                let mut what = what.to_owned();
                if more > 0 {
                    what.push_str(&format!(", and has {more} more"));
                }
                self.record_malformed(&name, Protocol::Dns, Reason::Protocol(what));
            }
        };
        if query.metadata.op_code != OpCode::Query {
            unoffered("it is not a standard DNS query");
            answer.metadata.response_code = ResponseCode::NotImp;
            return answer;
        }
        let [question] = query.queries.as_slice() else {
            unoffered("it does not contain exactly one question");
            answer.metadata.response_code = ResponseCode::FormErr;
            return answer;
        };
        let edns = query.edns.is_some();
        if question.query_class() != DNSClass::IN {
            unoffered("its query class is not IN");
            answer.metadata.response_code = ResponseCode::Refused;
            return answer;
        }
        match self.look_up(question.name(), question.query_type()) {
            Ok(data) => {
                let name = question.name();
                answer.add_answers(data.map(|data| Record::from_rdata(name.clone(), TTL, data)));
                if edns {
                    answer.set_edns(Edns::new());
                }
            }
            Err(decision) if matches!(decision.reason, Reason::Limit(_)) => {
                answer.metadata.response_code = ResponseCode::ServFail;
                if edns {
                    answer.set_edns(explained(&decision));
                }
            }
            // Not REFUSED: resolvers would try again, and some would wait.
            Err(decision) => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                if edns {
                    answer.set_edns(explained(&decision));
                }
            }
        }
        answer
    }

    fn look_up(&self, name: &DnsName, kind: RecordType) -> Result<Option<RData>, Decision> {
        let malformed = || Reason::Malformed("it is not a valid host name".to_owned());
        let text = name.to_ascii();
        let host = match Host::parse(&text) {
            Ok(host) => host,
            Err(_) => return Err(self.record_malformed(&text, Protocol::Dns, malformed())),
        };
        let Host::Name(name) = &host else {
            return Err(self.record_malformed(&text, Protocol::Dns, malformed()));
        };
        let decision = self.shared.rules.current().decide_name(&host);
        let joins = lock(&self.shared.lookups).joins(
            name.as_str(),
            kind,
            decision.allowed,
            decision.generation,
        );
        if !decision.allowed {
            return Err(if joins {
                decision
            } else {
                self.record_denied(decision)
            });
        }
        if !joins {
            self.record_allowed(decision.clone(), None)?;
        }
        let handed_out = lock(&self.shared.pool).hand_out(name);
        let Some((ipv4, ipv6)) = handed_out else {
            let reason = Reason::Limit("too many names are in use");
            return Err(self.record_denied(decision.but(reason)));
        };
        Ok(match kind {
            RecordType::A => Some(RData::A(ipv4.into())),
            RecordType::AAAA => ipv6.map(|ipv6| RData::AAAA(ipv6.into())),
            _ => None,
        })
    }
}

/// The same text as in the proxy's answer, as an extended DNS error.
fn explained(decision: &Decision) -> Edns {
    let mut option = BLOCKED.to_be_bytes().to_vec();
    option.extend_from_slice(format!("{}: {decision}", decision.reason.code()).as_bytes());
    let mut edns = Edns::new();
    edns.options_mut()
        .insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
    edns
}

/// DNS over TCP: each message is preceded by its length.
pub(super) async fn serve<S: Stream>(gateway: &Gateway, mut stream: S) {
    let mut query = Vec::new();
    loop {
        let exchange = async {
            let length = usize::from(stream.read_u16().await.ok()?);
            query.resize(length.min(LONGEST + 1), 0);
            stream.read_exact(&mut query).await.ok()?;
            let answer = gateway.answer_to(&query)?.1.to_vec().ok()?;
            let mut framed = u16::try_from(answer.len()).ok()?.to_be_bytes().to_vec();
            framed.extend_from_slice(&answer);
            stream.write_all(&framed).await.ok()?;
            stream.flush().await.ok()
        };
        if !matches!(
            timeout(gateway.shared.limits.asking, exchange).await,
            Ok(Some(()))
        ) {
            return;
        }
    }
}
