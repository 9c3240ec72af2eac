use proptest::prelude::*;

use super::*;

/// By the automaton if there is one, and always by the machine too.
fn search(pattern: &str, text: &str) -> bool {
    let parsed = Pattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let answer = parsed.is_match(text).expect("within the step limit");
    let slow = backtrack::compile(&parsed.node, parsed.groups);
    assert_eq!(slow.is_match(text), Ok(answer), "{pattern} in {text:?}");
    if let (true, Some(required)) = (answer, parsed.required()) {
        let any = required.iter().any(|part| text.contains(part));
        assert!(any, "{pattern} in {text:?} without any of {required:?}");
    }
    answer
}

#[test]
fn patterns_mean_what_python_means() {
    // Each was answered by Python 3.11.
    let cases = [
        (r"import$", "import\n", true),
        (r"import\Z", "import\n", false),
        (r"import$", "import\n\n", false),
        (r"\n$", "a\n", true),
        (r"^$", "\n", true),
        (r"(?m)^b$", "a\nb\nc", true),
        (r"^b$", "a\nb\nc", false),
        (r"a.b", "a\nb", false),
        (r"(?s)a.b", "a\nb", true),
        (r"(?i)HELLO", "hello", true),
        (r"(?i)straße", "STRASSE", false),
        (r"(?i)i", "\u{130}", true),
        (r"(?i)\u0131", "I", true),
        (r"(?ai)k", "\u{212a}", false),
        (r"(?i)k", "\u{212a}", true),
        (r"\w", "\u{301}", false),
        (r"\w", "½", true),
        (r"(?a)\w", "é", false),
        (r"\bé\b", "l'é ", true),
        (r"\d", "٣", true),
        (r"\s", "\x1c", true),
        (r"(?a)\s", "\x1c", false),
        (r"\B", "", false),
        (r"\b", "", false),
        (r"\B", "ab", true),
        (r"(?=.*os)(?=.*sys)", "import os, sys", true),
        (r"(?=.*os)(?=.*sys)", "import os", false),
        (r"(?<!pip )install", "pip install", false),
        (r"(?<!pip )install", "apt install", true),
        (r"(a)\1", "aa", true),
        (r"(a)\1", "ab", false),
        (r"(?P<q>['\x22]).*(?P=q)", "x = 'y'", true),
        (r"(?i)(a)\1", "aA", true),
        (r"(a)?b(?(1)c|d)", "abc", true),
        (r"(a)?b(?(1)c|d)", "bd", true),
        (r"^(a)?b(?(1)c|d)", "abd", false),
        (r"(?>a+)a", "aaa", false),
        (r"a++a", "aaa", false),
        (r"(a|)*b", "aab", true),
        (r"(?:a{,2}){3}b", "aaaaab", true),
        (r"x{,2}y", "xxy", true),
        (r"x{a}", "x{a}", true),
        (r"x{}", "x{}", true),
        (r"[]a]", "]", true),
        (r"[^]a]", "]a", false),
        (r"[\b]", "\x08", true),
        (r"\07", "\x07", true),
        (r"\101", "A", true),
        (r"(?x) a b # comment", "ab", true),
        (r"(?#note)a", "a", true),
        (r"(?i:a)b", "Ab", true),
        (r"(?i:a)b", "AB", false),
        (r"(?i)(?-i:a)b", "AB", false),
        (r"(?<=(?i:A))b", "ab", true),
        (r"(a)(?<=\1)b", "ab", true),
        (r"a$b", "a\nb", false),
        (r"(a$|b)c?", "xa\n", true),
        (r"[☃😀]", "snow ☃", true),
        ("", "", true),
        (r".*", "", true),
        (r"\N{SNOWMAN}", "☃", true),
        (
            r"[\N{latin small letter a}-\N{LATIN SMALL LETTER C}]",
            "b",
            true,
        ),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(search(pattern, text), expected, "{pattern} in {text:?}");
    }
}

#[test]
fn bad_patterns_are_those_that_python_refuses() {
    for pattern in [
        "(",
        ")",
        "[",
        "[a",
        "[]",
        "*",
        "a**",
        "a{2}{3}",
        "^*",
        r"\b+",
        "(?P<a",
        "(?P<1>a)",
        "(?P=x)",
        "(?P<a>x)(?P<a>y)",
        r"\1",
        r"(\1)",
        r"\y",
        r"\x1",
        r"\u12",
        r"\U00110000",
        r"[\A]",
        "[z-a]",
        r"[a-\d]",
        "a{3,2}",
        "a{5000000000}",
        "(?<=a+)b",
        "(?<=a|bc)d",
        "a(?i)b",
        "(?L)a",
        "(?au)a",
        "(?i-i:a)",
        "(?-a:x)",
        "(?z)",
        "(?<a>x)",
        "(?(1)a|b|c)(d)",
        "(?(2)a)",
        "(?(0)a)",
        r"a\",
        r"\777",
        "(?#",
        "(?",
        "(?P",
        "(?P!)",
        r"(?<=(a)\1)",
        r"\8",
        r"\N{SNOWMAN",
        r"\N{NO SUCH NAME}",
        r"\NA",
        "(?t)a*",
        "(?t:a)",
    ] {
        assert!(Pattern::parse(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn what_blows_up_in_python_is_linear_or_bounded() {
    let text = format!("{}!", "a".repeat(5_000));
    assert!(!search_fast("^(a+)+$", &text).expect("an automaton decides"));
    assert!(!search_fast("^(a|a)*$", &text).expect("an automaton decides"));
    // With a look-ahead, only the machine can tell, and it gives up.
    let text = format!("{}!", "a".repeat(40));
    assert_eq!(search_fast("^(?=a)(a|a)*$", &text), Err(StepLimit));
}

fn search_fast(pattern: &str, text: &str) -> Result<bool, StepLimit> {
    Pattern::parse(pattern).expect("valid").is_match(text)
}

#[test]
fn too_large_patterns_are_refused() {
    assert!(Pattern::parse("(?:a{1000}){1000}").is_err());
    assert!(Pattern::parse(&"(".repeat(5_000)).is_err());
    assert!(Pattern::parse(&format!("{}a{}", "(?:".repeat(150), ")".repeat(150))).is_err());
    assert!(Pattern::parse(r"\w{1000}").is_ok());
}

#[test]
fn a_set_rules_out_only_what_does_not_match() {
    let patterns = [
        r"\d{2,}",
        r"^x = \d+$",
        r"(a)\1",
        r"[^\x00-\x7f]",
        r"\bos\b",
    ];
    let parsed: Vec<Pattern> = patterns.map(|p| Pattern::parse(p).expect("valid")).into();
    let set = PatternSet::new(&parsed).expect("enough of them");
    for text in ["", "x = 1", "import os", "aa 42", "é 42", "nothing"] {
        let mut missing = Vec::new();
        set.missing(text, |index| missing.push(index));
        for index in missing {
            assert_eq!(
                parsed[index].is_match(text),
                Ok(false),
                "{} in {text}",
                patterns[index]
            );
        }
    }
    // All that match are told, not only the first.
    let letters = ["b", " "].map(|p| Pattern::parse(p).expect("valid"));
    PatternSet::new(&letters)
        .expect("enough of them")
        .missing("a b", |index| panic!("{index} is there"));
    let mut missing = Vec::new();
    set.missing("nothing", |index| missing.push(index));
    assert_eq!(missing, [0, 1, 3, 4], "the third is not for an automaton");
}

/// Patterns that an automaton can decide.
fn regular() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "a",
        "b",
        "A",
        "é",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\W",
        r"\b",
        r"\B",
        "^",
        "$",
        r"\Z",
        "[ab]",
        "[^a]",
        "[a-z]",
        r"\n",
        "i",
        "(?i:k)",
        "(?i:[a-k])",
        "1",
    ]);
    let quantifier = prop::sample::select(vec![
        "", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}?", "+?",
    ]);
    let piece = (atom, quantifier).prop_map(|(atom, quantifier)| match atom {
        r"\b" | r"\B" | "^" | "$" | r"\Z" => atom.to_owned(),
        _ => format!("{atom}{quantifier}"),
    });
    piece.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 1..3)
                .prop_map(|parts| format!("(?:{})", parts.join("|"))),
            inner.prop_map(|part| format!("({part})*")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_automaton_and_the_machine_agree(
        pattern in regular(),
        text in "[abAéiİkK1_ \n]{0,8}",
    ) {
        if Pattern::parse(&pattern).is_ok() {
            search(&pattern, &text);
        }
    }

    #[test]
    fn no_pattern_is_too_strange_to_be_read(pattern in r"[a(|)*+?\[\]^$\\{},:=!<>P#1dwi-]{0,20}", text in "[ab1\n]{0,6}") {
        if let Ok(pattern) = Pattern::parse(&pattern) {
            let _ = pattern.is_match(&text);
        }
    }
}
