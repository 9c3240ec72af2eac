//! The resolver inside. Answers allowed names with addresses of the pool; nothing is ever passed on.

use brig_hosts::Host;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name as DnsName, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Gateway, Stream, lock};
use crate::decision::{Decision, Protocol, Reason};

/// Seconds that an answer may be remembered: rules may change.
const TTL: u32 = 5;
/// Longer questions have no honest reason.
const LONGEST: usize = 4096;
/// The extended error (RFC 8914) and its code for "blocked".
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;

impl Gateway {
    /// The answer to one DNS message. None for what is not even a question.
    pub fn answer_dns(&self, query: &[u8]) -> Option<Vec<u8>> {
        if query.len() > LONGEST {
            return None;
        }
        let id = u16::from_be_bytes(*query.first_chunk()?);
        let Ok(query) = Message::from_vec(query) else {
            let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
            return error.to_vec().ok();
        };
        if query.metadata.message_type != MessageType::Query {
            return None;
        }
        self.answer(&query).to_vec().ok()
    }

    fn answer(&self, query: &Message) -> Message {
        let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
        answer.metadata.recursion_desired = query.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.add_queries(query.queries.iter().cloned());
        if query.metadata.op_code != OpCode::Query {
            answer.metadata.response_code = ResponseCode::NotImp;
            return answer;
        }
        let [question] = query.queries.as_slice() else {
            answer.metadata.response_code = ResponseCode::FormErr;
            return answer;
        };
        let edns = query.edns.is_some();
        if question.query_class() != DNSClass::IN {
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
            // Not "refused": resolvers would ask again, and some would wait.
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
        let malformed = || Reason::Malformed("it is no name of a host".to_owned());
        let text = name.to_ascii();
        let host = match Host::parse(&text) {
            Ok(host) => host,
            Err(_) => return Err(self.malformed(&text, Protocol::Dns, malformed())),
        };
        let Host::Name(name) = &host else {
            return Err(self.malformed(&text, Protocol::Dns, malformed()));
        };
        let decision = self.shared.rules.current().decide_name(&host);
        if !decision.allowed {
            return Err(self.denied(decision));
        }
        self.noted(decision, None)?;
        let (ipv4, ipv6) = lock(&self.shared.pool).hand_out(name);
        Ok(match kind {
            RecordType::A => Some(RData::A(ipv4.into())),
            RecordType::AAAA => ipv6.map(|ipv6| RData::AAAA(ipv6.into())),
            _ => None,
        })
    }
}

/// The same text that the proxy answers with.
fn explained(decision: &Decision) -> Edns {
    let mut option = BLOCKED.to_be_bytes().to_vec();
    option.extend_from_slice(format!("{}: {decision}", decision.reason.code()).as_bytes());
    let mut edns = Edns::new();
    edns.options_mut()
        .insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
    edns
}

/// DNS over TCP: messages with their length in front.
pub(super) async fn serve<S: Stream>(gateway: &Gateway, mut stream: S) {
    let mut query = Vec::new();
    loop {
        let exchange = async {
            let length = usize::from(stream.read_u16().await.ok()?);
            if length > LONGEST {
                return None;
            }
            query.resize(length, 0);
            stream.read_exact(&mut query).await.ok()?;
            let answer = gateway.answer_dns(&query)?;
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
