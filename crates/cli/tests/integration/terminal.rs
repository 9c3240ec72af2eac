//! Brig on a real terminal.

use std::process::Command;

use crate::common::Brig;
use crate::common::pty::Terminal;
use rustix::termios::LocalModes;

#[test]
fn escapes_are_shown_and_not_obeyed() {
    let brig = Brig::new();
    let code = r"print('\x1b]0;owned\x07 \x9b31m \u202e evil\rgood\ttab')";
    let (status, shown) = Terminal::start(&brig.command(["run", "-c", code]), 24, 80).finish();
    assert!(status.success());
    let shown = String::from_utf8(shown).unwrap();
    assert_eq!(shown, "␛]0;owned␇ \\u{9b}31m \\u{202e} evil␍good\ttab\r\n");
}

#[test]
fn escapes_on_stderr_and_in_errors_are_shown_too() {
    let brig = Brig::new();
    let code = r"import sys; sys.stderr.write('\x1b[2J'); sys.stderr.flush()";
    let (_, shown) = Terminal::start(&brig.command(["run", "-c", code]), 24, 80).finish();
    assert_eq!(String::from_utf8(shown).unwrap(), "␛[2J");

    let mut command = brig.command(["run", "--", "/\x1b[2Jprogram"]);
    command.env("NO_COLOR", "1");
    let (status, shown) = Terminal::start(&command, 24, 80).finish();
    assert_eq!(status.code(), Some(127));
    assert!(
        !shown.contains(&0x1b),
        "{}",
        String::from_utf8_lossy(&shown)
    );
}

#[test]
fn json_on_a_terminal_is_harmless() {
    let brig = Brig::new();
    let command = brig.command(["run", "--json", "-c", r"print('\x1b[31m\x9b\u202e')"]);
    let (_, shown) = Terminal::start(&command, 24, 80).finish();
    let shown = String::from_utf8(shown).unwrap();
    assert!(!shown.contains(['\x1b', '\u{9b}', '\u{202e}']), "{shown}");
    let object: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(object["result"]["stdout"], "\x1b[31m\u{9b}\u{202e}\n");
}

#[test]
fn errors_are_coloured_unless_no_color_is_set() {
    let brig = Brig::new();
    let mut command = brig.command(["run", "nothing.py"]);
    command.env("TERM", "xterm");
    let (_, shown) = Terminal::start(&command, 24, 80).finish();
    assert!(shown.contains(&0x1b));
    command.env("NO_COLOR", "1");
    let (_, shown) = Terminal::start(&command, 24, 80).finish();
    assert!(!shown.contains(&0x1b));
}

#[test]
fn a_shell_inside_lives_on_the_terminal() {
    let brig = Brig::new();
    let command = brig.command(["run", "-it", "--", "bash", "--norc"]);
    let mut terminal = Terminal::start(&command, 31, 97);
    let before = terminal.before.clone();
    terminal.wait_for("$ ");
    // Written so that its echo is not taken for the prompt.
    terminal.keys(b"PS1='rea''dy> '\r");
    terminal.wait_for("ready> ");
    assert!(
        !terminal.settings().local_modes.contains(LocalModes::ICANON),
        "raw mode"
    );

    terminal.keys(b"tty; stty size\r");
    terminal.wait_for("/dev/pts/");
    terminal.wait_for("31 97");

    terminal.resize(40, 120);
    terminal.wait_for("ready> ");
    // The new size arrives when it arrives; a size that never does ends the test all the same.
    terminal.keys(b"until stty size | grep 40; do sleep 0.1; done\r");
    terminal.wait_for("40 120");

    // Ctrl-C ends what runs inside, not the shell and not Brig.
    terminal.keys(b"sleep 60\r");
    terminal.wait_for("sleep 60");
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.keys(b"\x03");
    terminal.wait_for("ready> ");
    terminal.keys(b"echo $?\r");
    terminal.wait_for("130");

    // Escapes pass as they are: this is what -t is for.
    terminal.keys(b"printf '\\033[31mred\\n'\r");
    terminal.wait_for("\x1b[31mred");

    terminal.keys(b"exit 7\r");
    terminal.wait_for("exit 7");
    let after = terminal.settings_after_exit();
    let (status, _) = terminal.finish();
    assert_eq!(status.code(), Some(7));
    assert_eq!(
        format!("{before:?}"),
        format!("{after:?}"),
        "the terminal is as it was"
    );
}

#[test]
fn the_terminal_comes_back_when_brig_is_ended() {
    let brig = Brig::new();
    let command = brig.command(["run", "-it", "--", "sh", "-c", "stty size; exec sleep 60"]);
    let mut terminal = Terminal::start(&command, 24, 80);
    let before = terminal.before.clone();
    terminal.wait_for("24 80");
    let id = terminal.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let after = terminal.settings_after_exit();
    let (status, _) = terminal.finish();
    assert_eq!(status.code(), Some(143));
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}

#[test]
fn ctrl_c_cancels_without_t() {
    let brig = Brig::new();
    let command = brig.command(["run", "--", "sh", "-c", "echo up; exec sleep 60"]);
    let mut terminal = Terminal::start(&command, 24, 80);
    terminal.wait_for("up");
    terminal.keys(b"\x03");
    let (status, _) = terminal.finish();
    assert_eq!(status.code(), Some(130));
}

/// What others wrote into records and policies: C1 controls, escapes, direction overrides and
/// characters that nobody sees.
const HOSTILE: &str = "x\\u009b31m\\u001b]0;t\\u0007\\u202e\\u200b\\u0085y";

#[test]
fn nothing_that_is_printed_on_a_terminal_can_drive_it() {
    let brig = Brig::new();
    let policy = format!(
        "name: \"p{HOSTILE}\"\ndefaults: {{action: allow}}\nrules:\n- {{name: \"r{HOSTILE}\", \
         action: deny, message: \"{HOSTILE}\", condition: {{field: code, operator: contains, value: \"1{HOSTILE}\"}}}}\n\
         - {{name: s, action: deny, message: \"m{HOSTILE}\", condition: {{field: code, operator: contains, value: print}}}}\n"
    );
    brig.write("p.yaml", &policy);
    brig.write("q.yaml", "name: q\n");
    brig.write("facts.json", "{\"code\": \"print\"}");
    brig.run(["run", "--policy", "p.yaml", "-c", "print(1)"])
        .exits(126);
    let raw = |c: char| matches!(c, '\u{9b}' | '\u{202e}' | '\u{200b}' | '\u{85}');
    let commands: [&[&str]; 11] = [
        &["audit", "export", "--format", "csv"],
        &["audit", "export", "--format", "agt"],
        &["audit", "export", "--format", "ocsf"],
        &["audit", "export", "--format", "cloudevents"],
        &["audit", "show"],
        &["audit", "show", "--json"],
        &["audit", "show", "--last", "2", "--json"],
        &["audit", "prove", "1"],
        &["policy", "check", "p.yaml"],
        &["policy", "diff", "q.yaml", "p.yaml"],
        &["run", "--policy", "p.yaml", "-c", "print(1)"],
    ];
    let mut exact = 0;
    for words in commands {
        let piped = brig.run(words);
        exact += usize::from(piped.stdout().contains(raw));
        let (_, shown) = Terminal::start(&brig.command(words), 24, 200).finish();
        let shown = String::from_utf8_lossy(&shown).into_owned();
        // Colours are ours.
        let ours = ["\x1b[1;31m", "\x1b[1;33m", "\x1b[1;36m", "\x1b[0m"];
        let text = ours
            .iter()
            .fold(shown.clone(), |text, own| text.replace(own, ""));
        let bad = |c: char| raw(c) || (c.is_control() && !"\r\n\t".contains(c));
        assert!(!text.contains(bad), "{words:?}: {shown:?}");
        assert!(!text.trim().is_empty(), "{words:?}");
    }
    // Control: into a file or a pipe everything is exact.
    assert!(exact >= 4, "{exact}");
}

/// A file of a sandbox that is copied to the terminal.
#[test]
fn a_file_that_is_copied_to_a_terminal_cannot_drive_it() {
    let brig = Brig::new();
    brig.run(["session", "create", "s"]).exits(0);
    brig.run([
        "session",
        "exec",
        "s",
        "-c",
        "open('f','w').write('a\\x9b31m\\u202e\\x1b[2Jb\\n')",
    ])
    .exits(0);
    let words = ["session", "cp", "s:f", "-"];
    assert!(
        brig.run(words)
            .stdout()
            .contains("a\u{9b}31m\u{202e}\x1b[2Jb"),
        "control"
    );
    let (_, shown) = Terminal::start(&brig.command(words), 24, 80).finish();
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("a\\u{9b}31m\\u{202e}␛[2Jb"), "{shown:?}");
    brig.run(["session", "destroy", "s"]);
}
