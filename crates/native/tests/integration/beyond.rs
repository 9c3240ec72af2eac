//! What a program sends beyond its sandbox leads nowhere, fails at once, and is on record. Nothing of it
//! leaves the sandbox's own network namespace: the addresses are for documentation, or nobody's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_audit::{Egress, Event, MemoryLog};
use brig_egress::{Layer, LayerKind, Rule};
use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Language, NetworkConfig, Report, Request, Sandbox, SessionConfig};
use brig_testing::Server;

fn allow(rules: &[String]) -> SessionConfig {
    let rules = rules.iter().map(|rule| Rule::parse(rule).unwrap());
    SessionConfig {
        network: NetworkConfig {
            open: false,
            layers: vec![Layer::new(LayerKind::Run).allow(rules)],
        },
        ..SessionConfig::default()
    }
}

async fn run(config: SessionConfig, code: &str) -> (Report, String) {
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "beyond".parse().unwrap();
    let request = Request::code(Language::Python, format!("{PRELUDE}{code}"));
    let report = sandbox.run_once(&agent, config, request).await.unwrap();
    let outcome = &report.outcome;
    let both = [&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    (report, text)
}

const PRELUDE: &str = r#"
import errno, os, socket, struct, sys, threading, time
QUERY = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05asked\x07invalid\x00\x00\x01\x00\x01'
def say(name, what):
    print(name, errno.errorcode.get(getattr(what, 'errno', 0), what), flush=True)
def tcp(name, place, kind=socket.AF_INET, before=lambda s: None):
    with socket.socket(kind) as s:
        s.settimeout(60)
        before(s)
        try:
            s.connect(place)
            say(name, 'CONNECTED')
        except OSError as e:
            say(name, e)
def udp(name, place, kind=socket.AF_INET, data=b'x'):
    with socket.socket(kind, socket.SOCK_DGRAM) as s:
        s.settimeout(60)
        try:
            s.connect(place)
            s.send(data)
            say(name, f'ANSWERED {s.recv(2000)}')
        except OSError as e:
            say(name, e)
"#;

/// The denial of this protocol, host and port.
fn denied<'a>(report: &'a Report, protocol: &str, host: &str, port: u16) -> Option<&'a Egress> {
    let is_meant = |one: &&Egress| {
        !one.allowed && one.protocol == protocol && one.host == host && one.port == port
    };
    report.attempted.egress.iter().find(is_meant)
}

const PLACES: [(&str, &str, u16); 7] = [
    ("tcp", "169.254.169.254", 80),
    ("tcp", "192.0.2.1", 5432),
    ("tcp", "10.0.0.1", 22),
    ("udp", "192.0.2.1", 4444),
    ("udp", "192.0.2.53", 53),
    ("dns", "asked.invalid", 0),
    ("tcp", "192.0.2.9", 9000),
];

const EVERYWHERE: &str = r#"
tcp('metadata', ('169.254.169.254', 80))
tcp('database', ('192.0.2.1', 5432))
udp('datagram', ('192.0.2.1', 4444))
udp('dns', ('192.0.2.53', 53), data=QUERY)
tcp('bound', ('10.0.0.1', 22), before=lambda s: s.bind(('127.9.9.9', 0)))
s = socket.socket(socket.AF_INET6)
s.settimeout(60)
try: s.connect(('::ffff:192.0.2.9', 9000)); say('mapped', 'CONNECTED')
except OSError as e: say('mapped', e)
"#;

/// With the network off, and with one that leads elsewhere.
#[tokio::test]
async fn what_is_sent_beyond_the_sandbox_is_refused_and_on_record() {
    let other = allow(&["other.invalid:8443".into()]);
    for config in [SessionConfig::default(), other] {
        let begun = Instant::now();
        let (report, text) = run(config, EVERYWHERE).await;
        assert!(
            begun.elapsed() < Duration::from_secs(50),
            "it waited: {text}"
        );
        let egress = &report.attempted.egress;
        for (protocol, host, port) in PLACES {
            let found = denied(&report, protocol, host, port);
            assert!(found.is_some(), "{protocol} {host} {port}: {egress:#?}");
        }
        assert_eq!(text.matches(" ENETUNREACH").count(), 6, "{text}");
        assert!(egress.iter().all(|one| !one.allowed), "{egress:#?}");
    }
}

#[tokio::test]
async fn ipv6_is_on_record_too() {
    let code = "tcp('tcp', ('2001:db8::7', 443), socket.AF_INET6)\n\
                udp('udp', ('2001:db8::8', 4433), socket.AF_INET6)\n\
                tcp('loopback', ('::1', 9), socket.AF_INET6)\n";
    let (report, text) = run(SessionConfig::default(), code).await;
    if text.contains("EAFNOSUPPORT") {
        brig_testing::skip("packets by IPv6", "this kernel has none");
        return;
    }
    let egress = &report.attempted.egress;
    assert!(
        denied(&report, "tcp", "2001:db8::7", 443).is_some(),
        "{egress:#?} {text}"
    );
    assert!(
        denied(&report, "udp", "2001:db8::8", 4433).is_some(),
        "{egress:#?} {text}"
    );
    assert_eq!(
        egress.len(),
        2,
        "loopback is the sandbox's own: {egress:#?}"
    );
    assert!(
        !text.contains("CONNECTED") && !text.contains("ANSWERED"),
        "{text}"
    );
}

/// What a program says beside its data (`sendmsg`) changes the packet, and not that it is on record.
#[tokio::test]
async fn what_is_said_beside_the_data_hides_no_datagram() {
    let code = r#"
PKTINFO, RETOPTS, PKTINFO6, HOPLIMIT6 = 8, 7, 50, 52
def sent(name, place, *beside, kind=socket.AF_INET, option=None):
    with socket.socket(kind, socket.SOCK_DGRAM) as s:
        if option: s.setsockopt(*option)
        try: say(name, s.sendmsg([b'x'], beside, 0, place))
        except OSError as e: say(name, e)
def info(interface, source):
    return (socket.IPPROTO_IP, PKTINFO, struct.pack('=i4s4s', interface, socket.inet_aton(source), bytes(4)))
def info6(interface, source):
    return (socket.IPPROTO_IPV6, PKTINFO6, socket.inet_pton(socket.AF_INET6, source) + struct.pack('=I', interface))
route = bytes([7, 7, 4]) + bytes(5)
sent('interface', ('192.0.2.1', 1), info(1, '0.0.0.0'))
sent('source', ('192.0.2.1', 2), info(0, '127.0.0.1'))
sent('foreign', ('192.0.2.1', 3), info(0, '192.0.2.7'))
sent('options', ('192.0.2.1', 4), (socket.IPPROTO_IP, RETOPTS, route))
sent('broadcast', ('255.255.255.255', 5), option=(socket.SOL_SOCKET, socket.SO_BROADCAST, 1))
sent('all hosts', ('224.0.0.1', 6), info(1, '0.0.0.0'))
sent('group', ('239.1.2.3', 7))
if socket.has_ipv6:
    six = dict(kind=socket.AF_INET6)
    sent('interface6', ('2001:db8::1', 1), info6(1, '::'), **six)
    sent('hops6', ('2001:db8::1', 2), (socket.IPPROTO_IPV6, HOPLIMIT6, struct.pack('=i', 1)), **six)
    sent('foreign6', ('2001:db8::1', 3), info6(0, '2001:db8::9'), **six)
    sent('group6', ('ff02::fb', 5353), **six)
    sent('scoped6', ('ff05::2', 6, 0, 1), **six)
"#;
    let (report, text) = run(SessionConfig::default(), code).await;
    let egress = &report.attempted.egress;
    let mut expected = vec![
        ("192.0.2.1", 1),
        ("192.0.2.1", 2),
        ("192.0.2.1", 4),
        ("255.255.255.255", 5),
        ("224.0.0.1", 6),
    ];
    // The kernel refuses these itself.
    assert!(text.contains("foreign ENETUNREACH"), "{text}");
    assert!(text.contains("group ENETUNREACH"), "{text}");
    if text.contains("interface6 1") {
        assert!(text.contains("foreign6 EINVAL"), "{text}");
        expected.extend([
            ("2001:db8::1", 1),
            ("2001:db8::1", 2),
            ("ff02::fb", 5353),
            ("ff05::2", 6),
        ]);
    } else {
        brig_testing::skip(
            "what is said beside datagrams of IPv6",
            "this kernel has none",
        );
    }
    for (host, port) in &expected {
        let found = denied(&report, "udp", host, *port);
        assert!(found.is_some(), "{host} {port}: {egress:#?} {text}");
    }
    assert_eq!(egress.len(), expected.len(), "{egress:#?} {text}");
}

/// The last thing a program does, without waiting for anything.
#[tokio::test]
async fn what_is_sent_last_is_on_record() {
    for _ in 0..10 {
        let code = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                    d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                    t = socket.socket()\n\
                    t.setblocking(False)\n\
                    t.connect_ex(('192.0.2.3', 3))\n\
                    d.sendto(QUERY, ('127.0.0.1', 53))\n\
                    s.sendto(b'x', ('192.0.2.2', 2))\n\
                    os._exit(0)";
        let (report, _) = run(SessionConfig::default(), code).await;
        let egress = &report.attempted.egress;
        assert!(
            denied(&report, "udp", "192.0.2.2", 2).is_some(),
            "{egress:#?}"
        );
        assert!(
            denied(&report, "tcp", "192.0.2.3", 3).is_some(),
            "{egress:#?}"
        );
        assert!(
            denied(&report, "dns", "asked.invalid", 0).is_some(),
            "{egress:#?}"
        );
    }
}

#[tokio::test]
async fn loopback_works_and_is_no_attempt() {
    let code = "l = socket.create_server(('127.0.0.1', 0))\n\
                tcp('own', l.getsockname())\n\
                tcp('nobody', ('127.0.0.1', 9))\n\
                u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                u.bind(('127.0.0.5', 0))\n\
                u.sendto(b'hello', u.getsockname())\n\
                say('datagram', u.recv(10))\n";
    let (report, text) = run(SessionConfig::default(), code).await;
    assert!(text.contains("own CONNECTED"), "{text}");
    assert!(text.contains("nobody ECONNREFUSED"), "{text}");
    assert!(text.contains("datagram b'hello'"), "{text}");
    assert!(
        report.attempted.egress.is_empty(),
        "{:?}",
        report.attempted.egress
    );
}

/// Nobody inside can answer in the name of an address that is not its own.
#[tokio::test]
async fn a_program_can_not_pose_as_another_machine() {
    let code = "IP_FREEBIND, IP_TRANSPARENT = 15, 19\n\
                any = socket.create_server(('0.0.0.0', 8080))\n\
                tcp('control', ('127.0.0.1', 8080))\n\
                tcp('any', ('192.0.2.1', 8080))\n\
                try: socket.create_server(('192.0.2.2', 8081)); say('bind', 'BOUND')\n\
                except OSError as e: say('bind', e)\n\
                free = socket.socket()\n\
                free6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
                def set(name, s, *option):\n\
                \x20   try: s.setsockopt(*option); say(name, 'SET')\n\
                \x20   except OSError as e: say(name, e)\n\
                set('free', free, socket.IPPROTO_IP, IP_FREEBIND, 1)\n\
                set('free6', free6, socket.IPPROTO_IPV6, 78, 1)\n\
                set('options', free, socket.IPPROTO_IP, socket.IP_OPTIONS, b'')\n\
                set('route', free6, socket.IPPROTO_IPV6, 57, b'')\n\
                set('sticky', free6, socket.IPPROTO_IPV6, 6, b'')\n\
                set('hops', free6, socket.IPPROTO_IPV6, 16, 3)\n\
                try: free.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1); say('transparent', 'SET')\n\
                except OSError as e: say('transparent', e)\n";
    let (report, text) = run(SessionConfig::default(), code).await;
    assert!(text.contains("control CONNECTED"), "{text}");
    for line in [
        "any ENETUNREACH",
        "bind EADDRNOTAVAIL",
        "free EPERM",
        "free6 EPERM",
        "options EPERM",
        "route EPERM",
        "sticky EPERM",
        "hops SET",
        "transparent EPERM",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(denied(&report, "tcp", "192.0.2.1", 8080).is_some());
}

#[tokio::test]
async fn names_fail_at_once_and_are_on_record() {
    // A name that is waited for takes five seconds at least, each time.
    let code = "quickest = []\n\
                for name in ('tried.invalid', 'metadata.google.internal'):\n\
                \x20   took = []\n\
                \x20   for _ in range(3):\n\
                \x20       begun = time.monotonic()\n\
                \x20       try: say(name, socket.getaddrinfo(name, 443))\n\
                \x20       except socket.gaierror as e: print(name, e.errno == socket.EAI_NONAME, e)\n\
                \x20       took.append(time.monotonic() - begun)\n\
                \x20   quickest.append(min(took))\n\
                print('at once', max(quickest) < 4.9)\n\
                say('control', socket.getaddrinfo('localhost', 443)[0][4])\n";
    let (report, text) = run(SessionConfig::default(), code).await;
    assert!(text.contains("tried.invalid True"), "{text}");
    assert!(text.contains("metadata.google.internal True"), "{text}");
    assert!(text.contains("at once True"), "{text}");
    assert!(
        text.contains("control ('127.0.0.1', 443)") || text.contains("control ('::1'"),
        "{text}"
    );
    assert!(denied(&report, "dns", "tried.invalid", 0).is_some());
    assert!(denied(&report, "dns", "metadata.google.internal", 0).is_some());
}

/// A rule for all ports holds for programs that know nothing of the proxy, on every port at once.
#[tokio::test]
async fn a_rule_for_all_ports_opens_every_port() {
    let servers = [(); 5].map(|()| Server::start());
    let ports: Vec<String> = servers
        .iter()
        .map(|server| server.port.to_string())
        .collect();
    // A first packet that gets lost is sent again after a second, for each port.
    let code = format!(
        "took = [], []\n\
         for port in ({}):\n\
         \x20   for times in took:\n\
         \x20       begun = time.monotonic()\n\
         \x20       try: page(port)\n\
         \x20       except OSError as e: print(port, e)\n\
         \x20       times.append(time.monotonic() - begun)\n\
         print('quick', [min(times) < 0.9 for times in took], took)\n",
        ports.join(", ")
    );
    // The name comes first, so it is not the sandbox's own that is asked for.
    let functions = "real = socket.getaddrinfo\n\
         def pool(host, *rest, **more):\n\
         \x20   with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n\
         \x20       s.settimeout(60)\n\
         \x20       s.sendto(b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x09localhost\\0\\0\\x01\\0\\x01', ('127.0.0.1', 53))\n\
         \x20       return real(socket.inet_ntoa(s.recv(500)[-4:]), *rest, **more)\n\
         socket.getaddrinfo = pool\n\
         def page(port):\n\
         \x20   s = socket.create_connection(('localhost.', port), 60)\n\
         \x20   s.sendall(b'GET /page HTTP/1.1\\r\\nHost: localhost.:%d\\r\\nConnection: close\\r\\n\\r\\n' % port)\n\
         \x20   print(s.makefile('rb').read())\n";
    let rules = ["localhost.:*".to_owned(), "127.0.0.1:*".to_owned()];
    let code = format!("{functions}{code}");
    let (report, text) = run(allow(&rules), &code).await;
    assert_eq!(text.matches("served GET /page").count(), 10, "{text}");
    assert!(text.contains("quick [True, True]"), "{text}");
    for server in &servers {
        let reached = report.attempted.egress.iter();
        let reached = reached.filter(|one| one.allowed && one.port == server.port);
        // Those that were alike are one row. What was asked for on them is no connection more.
        let reached: Vec<&Egress> = reached.collect();
        let counted = reached.iter().filter_map(|one| one.times);
        let counted: u64 = counted.map(|times| times.count).sum();
        assert_eq!(counted, 2, "{:#?}", report.attempted.egress);
        assert!(reached.iter().all(|one| one.protocol == "tcp"));
    }
    let lookups = report.attempted.egress.iter();
    let lookups = lookups.filter(|one| one.allowed && one.protocol == "dns");
    let lookups: u64 = lookups
        .filter_map(|one| one.times)
        .map(|times| times.count)
        .sum();
    assert_eq!(report.attempted.totals.allowed, 10 + lookups);
    let named = [
        format!("localhost.:{}", ports[0]),
        format!("127.0.0.1:{}", ports[0]),
    ];
    let (report, text) = run(allow(&named), &code).await;
    assert_eq!(text.matches("served GET /page").count(), 2, "{text}");
    let other = denied(&report, "tcp", "localhost", servers[1].port);
    let other = other.or(denied(&report, "tcp", "localhost.", servers[1].port));
    assert_eq!(
        other.map(|one| one.code.as_str()),
        Some("network.port"),
        "{report:#?}"
    );
}

/// A host has a row before another one has a second port.
#[tokio::test]
async fn a_scan_of_ports_hides_no_other_host() {
    let code = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                for p in range(1, 1101):\n\
                \x20   try: s.sendto(b'x', ('10.0.0.1', p))\n\
                \x20   except OSError: pass\n\
                \x20   if p % 20 == 0: time.sleep(0.01)\n\
                tcp('one', ('10.66.66.66', 22))\ntcp('other', ('192.168.7.7', 22))\n";
    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let request = Request::code(Language::Python, format!("{PRELUDE}{code}"));
    let agent: AgentId = "beyond".parse().unwrap();
    let report = sandbox.run_once(&agent, SessionConfig::default(), request);
    let report = report.await.unwrap();
    let scanned = report
        .attempted
        .egress
        .iter()
        .filter(|one| one.host == "10.0.0.1");
    let scanned: u64 = scanned.filter_map(|one| Some(one.times?.count)).sum();
    assert!(scanned > 25, "the control: {scanned}");
    for host in ["10.66.66.66", "192.168.7.7"] {
        assert!(denied(&report, "tcp", host, 22).is_some(), "{report:#?}");
    }
}

/// More than can be read is counted, and what comes after it is on record.
#[tokio::test]
async fn a_flood_hides_nothing() {
    const SENT: u64 = 5000;
    let code = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                for _ in range(5000): s.sendto(b'x', ('192.0.2.1', 1))\n\
                time.sleep(0.3)\n\
                tcp('metadata', ('169.254.169.254', 80))\n";
    let log = Arc::new(MemoryLog::new(20_000));
    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).recorder(log.clone());
    let sandbox = sandbox.build().unwrap();
    let request = Request::code(Language::Python, format!("{PRELUDE}{code}"));
    let agent: AgentId = "beyond".parse().unwrap();
    let report = sandbox.run_once(&agent, SessionConfig::default(), request);
    let report = report.await.unwrap();
    let outcome = &report.outcome;
    let text = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    assert!(text.contains("metadata ENETUNREACH"), "{text}");
    let (mut told, mut counted, mut metadata) = (0, 0, false);
    for record in log.records() {
        let Event::EgressDecided(egress) = record.event else {
            continue;
        };
        assert!(!egress.allowed, "{egress:?}");
        metadata |= egress.host == "169.254.169.254";
        match egress.host.strip_suffix(" more packets") {
            Some(count) => counted += count.parse::<u64>().unwrap(),
            None if egress.host == "192.0.2.1" => told += 1,
            None => {}
        }
    }
    let totals = report.attempted.totals;
    assert!(
        totals.denied > SENT,
        "all of them, and one more: {totals:?}"
    );
    // Those that were alike may be summed up.
    let alike = denied(&report, "udp", "192.0.2.1", 1).unwrap();
    let alike = serde_json::to_value(alike).unwrap();
    let alike = alike["times"]["count"].as_u64().unwrap_or(told);
    assert!(metadata);
    assert!(
        alike > 0 && alike + counted >= SENT,
        "{alike} and {counted}"
    );
}
