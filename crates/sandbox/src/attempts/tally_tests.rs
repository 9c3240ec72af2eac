use super::*;

fn asked(host: &str, allowed: bool, code: &str) -> Egress {
    Egress {
        allowed,
        code: code.into(),
        protocol: "connect".into(),
        host: host.into(),
        port: 443,
        ..Egress::default()
    }
}

fn ended(host: &str, sent: u64) -> Egress {
    Egress {
        carried: Some(Carried {
            sent,
            received: 1,
            milliseconds: 1,
        }),
        ..asked(host, true, "network.rule")
    }
}

fn counted(rows: &[Egress]) -> u64 {
    let times = rows.iter().filter_map(|row| row.times);
    times.map(|times| times.count).sum()
}

#[test]
fn no_flood_hides_an_upload_or_an_attempt_at_another_kind_of_host() {
    let mut tally = Tally::default();
    let mut apart = 0;
    for n in 0..50_000 {
        let name = format!("{n}.evil.io");
        let denied = asked(&name, false, "network.no-rule");
        apart += u64::from(tally.decided(&denied).expect("room"));
    }
    for _ in 0..10_000 {
        let tiny = asked("good.example", true, "network.rule");
        apart += u64::from(tally.decided(&tiny).expect("room"));
        tally.closed(&ended("good.example", 1));
    }
    assert!(apart < 2000, "{apart}");
    let metadata = asked("169.254.169.254", false, "network.address");
    assert!(
        tally.decided(&metadata).expect("room"),
        "has its own record"
    );
    let upload = asked("good.example", true, "network.rule");
    assert!(!tally.decided(&upload).expect("room"));
    assert!(tally.closed(&ended("good.example", 200 << 20)), "its own");
    let (listed, omitted) = tally.listed(25);
    assert!(listed.iter().any(|row| row.host == "169.254.169.254"));
    let good = listed.iter().find(|row| row.host == "good.example");
    let good = good.expect("a row");
    assert_eq!(good.times.expect("times").count, 10_001);
    assert_eq!(good.carried.expect("bytes").sent, 10_000 + (200 << 20));
    assert_eq!(counted(&listed) + omitted, 60_002);
    assert_eq!(
        (tally.totals.allowed, tally.totals.denied),
        (10_001, 50_001)
    );
    assert_eq!(tally.totals.sent, 10_000 + (200 << 20));
    // What has no record of its own is in a total.
    let totals = tally.unrecorded_totals();
    let others = totals
        .iter()
        .find(|row| row.host == OTHERS)
        .expect("others");
    assert_eq!(others.times.expect("times").count, 50_000 - DENIED as u64);
    assert!(tally.rows.len() < 2 * DENIED);
}

#[test]
fn packets_that_nobody_could_read_count_as_many_as_they_were() {
    let mut tally = Tally::default();
    let limit = |host: &str, detail: &str| Egress {
        detail: Some(detail.into()),
        ..asked(host, false, "network.limit")
    };
    for n in 0..2 * DENIED {
        let name = limit(&format!("{n}.evil.io"), "it is too long");
        tally.decided(&name).expect("room");
    }
    for n in 0..100 {
        let address = asked(&format!("10.0.0.{n}"), false, "network.no-rule");
        tally.decided(&address).expect("room");
    }
    let before = tally.totals.denied;
    let made_up = limit("9000 more packets", "its request header is too long");
    tally.decided(&made_up).expect("room");
    assert_eq!(tally.totals.denied, before + 1);
    let real = limit("7000 more packets", DROPPED);
    assert!(tally.decided(&real).expect("room"), "its own record");
    assert_eq!(tally.totals.denied, before + 7001);
    let (listed, omitted) = tally.listed(25);
    let row = listed.iter().find(|row| row.host == real.host);
    assert_eq!(row.and_then(|row| row.times).expect("a row").count, 7000);
    assert_eq!(counted(&listed) + omitted, before + 7001);
}

#[test]
fn denials_that_are_told_together_count_as_many_as_they_were() {
    let mut tally = Tally::default();
    let first = asked("169.254.169.254", false, "network.address");
    assert!(tally.decided(&first).expect("room"));
    let now = Timestamp::now();
    let more = Egress {
        times: Some(Times {
            count: 41,
            first: now,
            last: now,
        }),
        ..first
    };
    assert!(tally.decided(&more).expect("room"));
    assert_eq!(tally.totals.denied, 42);
    let (listed, omitted) = tally.listed(25);
    assert_eq!((counted(&listed), listed.len(), omitted), (42, 1, 0));
    assert!(
        tally.unrecorded_totals().is_empty(),
        "all have records of their own"
    );
}

#[test]
fn nothing_is_allowed_that_has_no_row() {
    let mut tally = Tally::default();
    for n in 0..ALLOWED {
        let one = asked(&format!("{n}.good.example"), true, "network.rule");
        assert!(tally.decided(&one).expect("room"), "{n}");
    }
    assert!(
        tally
            .decided(&asked("one.more", true, "network.rule"))
            .is_err()
    );
    let known = asked("7.good.example", true, "network.rule");
    assert!(tally.decided(&known).is_ok(), "one that has a row");
    let denied = asked("one.more", false, "network.no-rule");
    assert!(tally.decided(&denied).expect("room of its own"));
    assert_eq!(tally.totals.allowed, ALLOWED as u64 + 1);
}

#[test]
fn no_scan_of_ports_hides_another_host() {
    let mut tally = Tally::default();
    let port = |host: &str, port: u16, protocol: &str| Egress {
        port,
        protocol: protocol.into(),
        ..asked(host, false, "network.no-rule")
    };
    let mut apart = 0;
    for n in 1..=2000 {
        let one = port("10.0.0.1", n, "udp");
        apart += u64::from(tally.decided(&one).expect("room"));
    }
    assert!(apart < 100, "the control: these are too many ({apart})");
    for host in ["10.66.66.66", "192.168.7.7"] {
        assert!(
            tally.decided(&port(host, 22, "tcp")).expect("room"),
            "{host}"
        );
    }
    let (listed, omitted) = tally.listed(25);
    assert!(
        listed
            .iter()
            .any(|row| row.host == "10.66.66.66" && row.port == 22)
    );
    assert_eq!(counted(&listed) + omitted, 2002);
    let shared = listed
        .iter()
        .find(|row| row.protocol == ANY)
        .expect("a row");
    assert_eq!(shared.times.expect("times").count, 2000 - PORTS as u64);
    let detail = format!("other ports, from {} to 2000", PORTS + 1);
    assert_eq!(shared.detail.as_ref(), Some(&detail));
    assert_eq!(tally.unrecorded_totals().len(), 1);
    // Nor do scans of many hosts.
    for host in 0..500_u32 {
        let host = format!("10.1.{}.{}", host / 250, host % 250);
        for n in 1..=40 {
            tally.decided(&port(&host, n, "tcp")).expect("room");
        }
    }
    assert!(tally.decided(&port("10.9.9.9", 22, "tcp")).expect("room"));
    assert!(tally.rows.len() <= 2 * 504 + SECOND, "{}", tally.rows.len());
    let (listed, _) = tally.listed(25);
    let hosts: std::collections::BTreeSet<&str> = listed.iter().map(|row| &*row.host).collect();
    assert_eq!(hosts.len(), 25, "one row of each before any second one");
}

#[test]
fn a_receipt_lists_one_of_each_kind_first() {
    let mut tally = Tally::default();
    for n in 0..200 {
        for host in [format!("169.254.7.{n}"), format!("10.0.0.{n}")] {
            let denied = asked(&host, false, "network.address");
            tally.decided(&denied).expect("room");
        }
    }
    let metadata = asked("169.254.169.254", false, "network.address");
    tally.decided(&metadata).expect("room");
    let name = asked("evil.io", false, "network.no-rule");
    tally.decided(&name).expect("room");
    let (listed, omitted) = tally.listed(25);
    assert_eq!((listed.len(), counted(&listed) + omitted), (25, 402));
    for host in ["169.254.169.254", "evil.io", "169.254.7.0", "10.0.0.0"] {
        assert!(listed.iter().any(|row| row.host == host), "{host}");
    }
}
