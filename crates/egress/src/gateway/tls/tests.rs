//! ClientHellos and answers, whole, in pieces and malformed.

use super::client_hello::SERVER_NAME;
use super::*;

fn vector(bytes: usize, body: &[u8]) -> Vec<u8> {
    let mut all = body.len().to_be_bytes()[8 - bytes..].to_vec();
    all.extend_from_slice(body);
    all
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), vector(2, body)].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    let entry = [vec![0], vector(2, name)].concat();
    extension(SERVER_NAME, &vector(2, &entry))
}

fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        vec![3, 3],
        vec![7; 32],
        vector(1, &[1; 32]),
        vector(2, &[0x13, 1]),
        vector(1, &[0]),
        vector(2, &extensions.concat()),
    ];
    [vec![CLIENT_HELLO], vector(3, &body.concat())].concat()
}

fn in_records(kind: u8, message: &[u8], each: usize) -> Vec<u8> {
    let records = message.chunks(each).map(|piece| {
        let body = vector(2, piece);
        [vec![kind, 3, 1], body].concat()
    });
    records.collect::<Vec<_>>().concat()
}

fn named(bytes: &[u8]) -> ClientBytes {
    ClientSide::default().next(bytes)
}

fn hello_of(name: &str) -> ClientHello {
    ClientHello {
        name: Some(name.to_owned()),
        encrypted: false,
    }
}

#[test]
fn a_hello_is_read_in_any_number_of_records_and_never_in_part() {
    let message = message(&[extension(10, &[0, 2, 0, 29]), sni(b"a.example")]);
    for each in [1, 2, 3, 5, 100, message.len()] {
        let bytes = in_records(HANDSHAKE, &message, each);
        let wanted = ClientBytes::Hello(hello_of("a.example"), bytes.len());
        assert_eq!(named(&bytes), wanted, "{each}");
        for cut in 0..bytes.len() {
            assert_eq!(named(&bytes[..cut]), ClientBytes::More, "{each} {cut}");
        }
    }
    let nameless = in_records(HANDSHAKE, &self::message(&[]), 9999);
    let wanted = ClientHello {
        name: None,
        encrypted: false,
    };
    assert_eq!(named(&nameless), ClientBytes::Hello(wanted, nameless.len()));
    let encrypted = [sni(b"a.example"), extension(0xfe0d, &[0; 9])];
    let encrypted = in_records(HANDSHAKE, &self::message(&encrypted), 9999);
    assert!(matches!(named(&encrypted), ClientBytes::Hello(hello, _) if hello.encrypted));
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let whole = |extensions: &[Vec<u8>]| in_records(HANDSHAKE, &message(extensions), 9999);
    let two = [
        vec![0],
        vector(2, b"a.example"),
        vec![0],
        vector(2, b"b.io"),
    ]
    .concat();
    let other_kind = [vec![1], vector(2, b"a.example")].concat();
    let sound = whole(&[sni(b"a.example")]);
    let mut behind = message(&[sni(b"a.example")]);
    behind.extend_from_slice(&message(&[sni(b"b.io")]));
    let mut trailing = message(&[sni(b"a.example")]);
    trailing[3] += 1;
    trailing.push(0);
    let cases: [(&str, Vec<u8>); 15] = [
        ("two names", whole(&[sni(b"a.example"), sni(b"b.io")])),
        ("two in a list", whole(&[extension(0, &vector(2, &two))])),
        ("no name", whole(&[extension(0, &vector(2, &other_kind))])),
        ("empty list", whole(&[extension(0, &vector(2, &[]))])),
        ("empty name", whole(&[sni(b"")])),
        ("empty", whole(&[extension(0, &[])])),
        ("NUL", whole(&[sni(b"a.example\0b.io")])),
        ("not ASCII", whole(&[sni("ä.example".as_bytes())])),
        ("twice", whole(&[extension(9, &[]), extension(9, &[])])),
        ("another behind it", in_records(HANDSHAKE, &behind, 9999)),
        ("bytes behind it", in_records(HANDSHAKE, &trailing, 9999)),
        (
            "an alert first",
            [&[ALERT, 3, 1, 0, 2, 1, 0], &sound[..]].concat(),
        ),
        (
            "another kind of record",
            in_records(DATA, &message(&[]), 9999),
        ),
        (
            "an empty record",
            [&[HANDSHAKE, 3, 1, 0, 0], &sound[..]].concat(),
        ),
        ("SSL 2", [&[HANDSHAKE, 2, 0], &sound[3..]].concat()),
    ];
    for (what, bytes) in cases {
        let sent = named(&bytes);
        assert!(
            matches!(sent, ClientBytes::Malformed(_)),
            "{what}: {sent:?}"
        );
    }
    // In the middle of a hello there is nothing else.
    let mut interrupted = in_records(HANDSHAKE, &message(&[sni(b"a.example")]), 20);
    interrupted.splice(25..25, [ALERT, 3, 1, 0, 2, 1, 0]);
    assert!(matches!(named(&interrupted), ClientBytes::Malformed(_)));
    let endless = in_records(
        HANDSHAKE,
        &[&[1, 0xff, 0xff, 0xff][..], &[0; 999]].concat(),
        99,
    );
    assert!(matches!(named(&endless), ClientBytes::Malformed(_)));
}

#[test]
fn a_second_hello_is_read_whatever_comes_before_it() {
    let first = in_records(HANDSHAKE, &message(&[sni(b"a.example")]), 9999);
    let second = in_records(HANDSHAKE, &message(&[sni(b"b.io")]), 40);
    let mut side = ClientSide::default();
    assert_eq!(
        side.next(&first),
        ClientBytes::Hello(hello_of("a.example"), first.len())
    );
    assert_eq!(
        side.next(&[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1]),
        ClientBytes::Pass(6)
    );
    assert_eq!(
        side.next(&[DATA, 3, 3, 0, 3, 1, 2, 3, 22]),
        ClientBytes::Pass(8)
    );
    assert_eq!(side.next(&[DATA, 3, 3, 0, 3, 1]), ClientBytes::More);
    assert_eq!(
        side.next(&second),
        ClientBytes::Hello(hello_of("b.io"), second.len())
    );
    assert!(
        matches!(side.next(&first), ClientBytes::Malformed(_)),
        "a third"
    );
    let mut side = ClientSide::default();
    assert!(matches!(side.next(&first), ClientBytes::Hello(..)));
    let key_exchange = [HANDSHAKE, 3, 3, 0, 4, 16, 0, 0, 0];
    assert!(matches!(
        side.next(&key_exchange),
        ClientBytes::Malformed(_)
    ));
}

#[test]
fn only_an_answer_in_tls_ends_the_watch() {
    let answer = |random: [u8; 32]| {
        let body = [&[3, 3][..], &random, &[0, 0x13, 1, 0]].concat();
        [vec![SERVER_HELLO], vector(3, &body)].concat()
    };
    for each in [1, 7, 9999] {
        let retry = in_records(HANDSHAKE, &answer(RETRY), each);
        assert_eq!(
            server_bytes(&retry),
            ServerBytes::Pass(retry.len()),
            "{each}"
        );
        assert_eq!(server_bytes(&retry[..retry.len() - 1]), ServerBytes::More);
        let taken = in_records(HANDSHAKE, &answer([9; 32]), each);
        assert_eq!(server_bytes(&taken), ServerBytes::Done, "{each}");
    }
    assert_eq!(server_bytes(&[]), ServerBytes::More);
    assert_eq!(
        server_bytes(&[ALERT, 3, 3, 0, 2, 1, 0, 22]),
        ServerBytes::Pass(7)
    );
    for other in [
        &b"220 ready\r\n"[..],
        b"HTTP/1.1 400 Bad\r\n",
        b"SSH-2.0-x\r\n",
        &[0; 9],
    ] {
        assert_eq!(server_bytes(other), ServerBytes::Other);
    }
    let certificate = in_records(HANDSHAKE, &[11, 0, 0, 1, 0], 9999);
    assert_eq!(server_bytes(&certificate), ServerBytes::Other);
}
