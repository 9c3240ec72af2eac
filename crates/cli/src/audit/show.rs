use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use brig_audit::line::Line;
use brig_audit::log::Cursor;
use brig_audit::view::View;

use crate::args::{Filter, ShowArgs};
use crate::failure::{self, Failure};
use crate::{escape, exit, json, table};

/// How often a log that is followed is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// Rows whose columns are aligned with each other.
const PAGE: usize = 1000;

pub fn matches(filter: &Filter, view: &View) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|id| id == found);
    is(&filter.agent, &view.agent)
        && is(&filter.session, &view.session)
        && is(
            &filter.execution,
            view.execution.as_deref().unwrap_or_default(),
        )
        && is(&filter.event, &view.event)
        && filter
            .decision
            .is_none_or(|wanted| view.decision == Some(wanted))
        && filter.since.is_none_or(|since| view.at >= since)
        && filter.until.is_none_or(|until| view.at < until)
}

pub fn run(path: &Path, args: &ShowArgs) -> Result<u8, Failure> {
    let mut cursor = Cursor::new(path);
    let mut page = Page {
        rows: VecDeque::new(),
        json: args.json,
        heading: true,
        shown: 0,
    };
    loop {
        let mut written = Ok(());
        cursor.read(|line| {
            if let Some(view) = View::of(line)
                && matches(&args.filter, &view)
            {
                page.add(line, view, args.last);
                if args.last.is_none() && page.rows.len() >= PAGE {
                    written = page.show();
                }
            }
            written.is_ok()
        })?;
        if written.and_then(|()| page.show()).is_err() {
            return Ok(exit::of_broken_pipe());
        }
        if !args.follow {
            if page.shown == 0 && !args.json {
                failure::note("no such records");
            }
            return Ok(0);
        }
        std::thread::sleep(PAUSE);
    }
}

struct Page {
    rows: VecDeque<Row>,
    json: bool,
    heading: bool,
    shown: usize,
}

enum Row {
    Line(String),
    Cells(Box<[String; 7]>),
}

impl Page {
    fn add(&mut self, line: &Line<'_>, view: View, last: Option<usize>) {
        self.rows.push_back(if self.json {
            Row::Line(format!(
                "{{\"hash\":\"{}\",\"prev\":\"{}\",\"record\":{},\"seq\":{}}}",
                line.hash, line.prev, line.record, line.seq
            ))
        } else {
            Row::Cells(Box::new(cells(view)))
        });
        if last.is_some_and(|last| self.rows.len() > last) {
            self.rows.pop_front();
        }
    }

    fn show(&mut self) -> std::io::Result<()> {
        let mut stdout = std::io::stdout().lock();
        let terminal = stdout.is_terminal();
        let (mut text, mut aligned) = (String::new(), Vec::new());
        self.shown += self.rows.len();
        for row in self.rows.drain(..) {
            match row {
                Row::Line(line) if terminal => {
                    text.push_str(&json::harmless(&line));
                    text.push('\n');
                }
                Row::Line(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Row::Cells(cells) => aligned.push(*cells),
            }
        }
        if !aligned.is_empty() {
            let heading = [
                "SEQ", "TIME", "AGENT", "SESSION", "EVENT", "DECISION", "DETAIL",
            ];
            let table = table::text(heading, &aligned);
            let rows = if std::mem::take(&mut self.heading) {
                0
            } else {
                1
            };
            for line in table.lines().skip(rows) {
                text.push_str(line);
                text.push('\n');
            }
        }
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

fn cells(view: View) -> [String; 7] {
    [
        view.seq.to_string(),
        view.at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        view.agent,
        short(&view.session),
        view.event,
        view.decision.map_or("", |verdict| verdict.name()).into(),
        cut(&view.detail),
    ]
}

/// The start of an id, which is enough to tell one from another.
fn short(id: &str) -> String {
    match id.char_indices().nth(13) {
        Some((end, _)) if id.len() > 24 => format!("{}…", &id[..end]),
        _ => id.into(),
    }
}

fn cut(text: &str) -> String {
    let text = escape::line(text);
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
