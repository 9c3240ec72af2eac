//! Brig on a real terminal.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Command;

use common::Brig;
use common::pty::Terminal;
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
