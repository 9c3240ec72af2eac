use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use brig_audit::line::Line;
use brig_audit::log::{Cursor, read_back};
use brig_audit::view::View;
use memchr::memmem::Finder;

use crate::args::{Filter, ShowArgs};
use crate::failure::{self, Failure};
use crate::{escape, exit, json, table};

/// How often a followed log is polled.
const PAUSE: Duration = Duration::from_millis(200);
/// Rows whose columns are aligned with each other.
const PAGE: usize = 1000;

pub(crate) fn matches(filter: &Filter, view: &View) -> bool {
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

/// Texts that a record must contain to match, so that most records need not be parsed.
#[derive(Debug)]
pub(crate) struct Quick(Vec<Finder<'static>>);

impl Quick {
    pub(crate) fn new(filter: &Filter) -> Self {
        let texts = [
            &filter.agent,
            &filter.session,
            &filter.execution,
            &filter.event,
        ];
        // In JSON form: records have only one way to write a text.
        let quoted = texts.into_iter().flatten();
        let quoted = quoted.map(|text| serde_json::Value::from(text.as_str()).to_string());
        Self(quoted.map(|text| Finder::new(&text).into_owned()).collect())
    }

    pub(crate) fn may_match(&self, line: &Line<'_>) -> bool {
        let record = line.record.as_bytes();
        self.0.iter().all(|text| text.find(record).is_some())
    }
}

/// The last records that match, read from the end.
fn last(path: &Path, args: &ShowArgs, count: usize, page: &mut Page) -> Result<(), Failure> {
    let quick = Quick::new(&args.filter);
    if count == 0 {
        return Ok(());
    }
    read_back(path, |line| {
        if quick.may_match(line)
            && let Some(view) = View::of(line)
            && matches(&args.filter, &view)
        {
            page.add(line, view);
        }
        page.rows.len() < count
    })?;
    page.rows.make_contiguous().reverse();
    Ok(())
}

pub(crate) fn run(path: &Path, args: &ShowArgs) -> Result<u8, Failure> {
    let quick = Quick::new(&args.filter);
    let mut cursor = Cursor::new(path);
    let mut page = Page {
        rows: VecDeque::new(),
        json: args.json,
        heading: true,
        shown: 0,
    };
    if let Some(count) = args.last {
        last(path, args, count, &mut page)?;
        return Ok(finish(&mut page));
    }
    loop {
        let mut written = Ok(());
        cursor.read(|line| {
            if quick.may_match(line)
                && let Some(view) = View::of(line)
                && matches(&args.filter, &view)
            {
                page.add(line, view);
                if page.rows.len() >= PAGE {
                    written = page.show();
                }
            }
            written.is_ok()
        })?;
        if let Err(error) = written.and_then(|()| page.show()) {
            return Ok(exit::of_unwritten(&error));
        }
        if !args.follow {
            return Ok(finish(&mut page));
        }
        std::thread::sleep(PAUSE);
    }
}

fn finish(page: &mut Page) -> u8 {
    if let Err(error) = page.show() {
        return exit::of_unwritten(&error);
    }
    if page.shown == 0 && !page.json {
        failure::note("no such records");
    }
    0
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
    fn add(&mut self, line: &Line<'_>, view: View) {
        self.rows.push_back(if self.json {
            let tag = line.tag.map(|tag| format!(",\"tag\":\"{tag}\""));
            Row::Line(format!(
                "{{\"hash\":\"{}\",\"prev\":\"{}\",\"record\":{},\"seq\":{}{}}}",
                line.hash,
                line.prev,
                line.record,
                line.seq,
                tag.unwrap_or_default()
            ))
        } else {
            Row::Cells(Box::new(cells(view)))
        });
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

/// The start of an id, enough to distinguish it.
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
