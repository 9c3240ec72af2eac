//! `brig man`: a manual page for every command, from the same definition as the help.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use crate::args::Cli;
use crate::exit;
use crate::failure;

pub(crate) fn run(folder: &Path) -> u8 {
    match write(folder) {
        Ok(()) => 0,
        Err(error) => {
            let problem = failure::describe(&error);
            failure::error(&format!(
                "cannot write manual pages to `{}`: {problem}",
                folder.display()
            ));
            exit::FAILED
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, page) in pages() {
        fs::write(folder.join(name), page)?;
    }
    Ok(())
}

fn pages() -> Vec<(String, Vec<u8>)> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    add(&root, None, &mut pages);
    pages
}

fn add(command: &Command, above: Option<&str>, pages: &mut Vec<(String, Vec<u8>)>) {
    let man = Man::new(command.clone())
        .source(concat!("Brig ", env!("CARGO_PKG_VERSION")))
        .manual("Brig");
    let mut page = Vec::new();
    render(command, &man, above, &mut page).expect("memory can be written");
    pages.push((man.get_filename(), page));
    let name = command.get_display_name().unwrap_or(command.get_name());
    for child in visible(command) {
        add(child, Some(name), pages);
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    (command.get_subcommands()).filter(|child| !child.is_hide_set())
}

fn render(command: &Command, man: &Man, above: Option<&str>, out: &mut Vec<u8>) -> io::Result<()> {
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if visible(command).next().is_some() {
        man.render_subcommands_section(out)?;
    }
    let mut rest = Roff::new();
    if let Some(help) = command.get_after_long_help() {
        after(&help.to_string(), &mut rest);
    }
    if let Some(above) = above {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold(above), roman("(1)")]);
    }
    rest.to_writer(out)
}

/// What follows the options: paragraphs of prose, of indented lines, which are kept as they are, or of
/// a heading and such lines.
fn after(text: &str, roff: &mut Roff) {
    let mut headed = false;
    for paragraph in text.split("\n\n") {
        let heading = (paragraph.split_once('\n'))
            .and_then(|(first, rest)| Some((first.strip_suffix(':')?, rest)))
            .filter(|(heading, _)| !heading.starts_with(' '));
        let lines = match heading {
            Some((heading, lines)) => {
                roff.control("SH", [heading.to_uppercase().as_str()]);
                lines
            }
            None if headed => {
                roff.control("PP", []);
                paragraph
            }
            None => {
                roff.control("SH", ["NOTES"]);
                paragraph
            }
        };
        headed = true;
        let verbatim = lines.starts_with(' ');
        if verbatim {
            roff.control("nf", []);
        }
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        if verbatim {
            roff.control("fi", []);
        }
    }
}
