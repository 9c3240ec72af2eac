//! The blocks of a document, and how each is run.

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    File {
        name: String,
        text: String,
    },
    Command {
        line: String,
        output: Option<Vec<String>>,
    },
}

/// Whose commands they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Audience {
    #[default]
    Everyone,
    Root,
    User,
    Nobody,
}

/// What is there when they run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum World {
    #[default]
    Usual,
    NoControlGroup,
    Mirror,
    Engine,
}

/// How a block is run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Setting {
    pub(super) audience: Audience,
    pub(super) world: World,
}

impl Setting {
    const NOWHERE: Self = Self {
        audience: Audience::Nobody,
        world: World::Usual,
    };

    fn of(comment: &str) -> Option<Self> {
        let text = comment.strip_prefix("<!--")?.strip_suffix("-->")?.trim();
        if text.starts_with("not run: ") || text.starts_with("run by: ") {
            return Some(Self::NOWHERE);
        }
        let mut setting = Self::default();
        for word in text.split(',') {
            match word.trim() {
                "as root" => setting.audience = Audience::Root,
                "as user" => setting.audience = Audience::User,
                "without a control group" => setting.world = World::NoControlGroup,
                "beside a mirror" => setting.world = World::Mirror,
                "with an engine" => setting.world = World::Engine,
                _ => return None,
            }
        }
        Some(setting)
    }

    pub(super) fn includes(self, is_root: bool) -> bool {
        match self.audience {
            Audience::Everyone => true,
            Audience::Root => is_root,
            Audience::User => !is_root,
            Audience::Nobody => false,
        }
    }
}

/// What is to be done, by block.
pub(super) fn steps(document: &str) -> Vec<(Setting, Step)> {
    let mut steps = Vec::new();
    let mut setting = Setting::default();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !line.trim().is_empty() {
                setting = Setting::of(line.trim()).unwrap_or_default();
            }
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let block: Vec<&str> = lines
            .by_ref()
            .take_while(|line| line.trim() != "```")
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        let block = match language {
            "console" => console(&block),
            "sh" => shell(&block),
            _ => file(&block).into_iter().collect(),
        };
        steps.extend(block.into_iter().map(|step| (setting, step)));
        setting = Setting::default();
    }
    steps
}

fn console(block: &[&str]) -> Vec<Step> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((command, _))) if command.ends_with('\\') => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, output))) => output.push((*line).to_owned()),
            (None, None) => panic!("a console block begins with `$ `, not with `{line}`"),
        }
    }
    let step = |(line, output)| Step::Command {
        line,
        output: Some(output),
    };
    steps.into_iter().map(step).collect()
}

fn shell(block: &[&str]) -> Vec<Step> {
    let mut commands: Vec<String> = Vec::new();
    for line in block {
        match commands.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => {
                last.push('\n');
                last.push_str(line);
            }
            None => commands.push((*line).to_owned()),
        }
    }
    let real = |line: &String| !line.is_empty() && !line.starts_with('#');
    let commands = commands.into_iter().filter(real);
    let step = |line| Step::Command { line, output: None };
    commands.map(step).collect()
}

/// A file, if the first line is a comment with its name.
fn file(block: &[&str]) -> Option<Step> {
    let name = block.first()?.strip_prefix("# ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_name = name.contains('.') && name.chars().all(plain) && !name.contains("..");
    is_name.then(|| Step::File {
        name: name.to_owned(),
        text: block.join("\n") + "\n",
    })
}

/// The lines of blocks that nothing runs and that do not say why.
pub(super) fn unexplained(document: &str) -> Vec<String> {
    const PROGRAMS: [&str; 4] = ["sh", "console", "python", "rust"];
    let mut found = Vec::new();
    let mut run_elsewhere = Vec::new();
    let mut comment = "";
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !line.trim().is_empty() {
                comment = line.trim();
            }
            continue;
        };
        let language = language.split(',').next().unwrap_or_default();
        let mut block = lines.by_ref().take_while(|(_, line)| line.trim() != "```");
        let first = block.next().map_or("", |(_, line)| line.trim());
        block.for_each(drop);
        if comment.starts_with("<!-- run by: ") {
            run_elsewhere.push(language);
        }
        let is_file = file(&[first]).is_some();
        let is_run = ["sh", "console"].contains(&language);
        let is_known = is_run || is_file || comment.starts_with("<!-- not run: ");
        if PROGRAMS.contains(&language) && !is_known && !run_elsewhere.contains(&language) {
            found.push(format!("{}: {language}", number + 1));
        }
        comment = "";
    }
    found
}

#[test]
fn a_block_that_nothing_runs_needs_a_reason() {
    let text = "
```python
one
```
<!-- not run: an outline -->
```rust,ignore
two
```
```python
# three.py
```
```sh
four
```
<!-- run by: cargo test --doc -->
```rust
five
```
text
```rust
six
```
";
    assert_eq!(unexplained(text), ["2: python"]);
    assert_eq!(unexplained("```rust\nfn main() {}\n```\n"), ["1: rust"]);
}

#[test]
fn blocks_are_read_as_they_are_meant() {
    let text = "
text
```python
# job.py
print(1)
```
<!-- not run: no engine -->
```sh
one
```

```console
$ two \\
  and
printed
$ three
```
";
    let command = |line: &str, output: &[&str]| Step::Command {
        line: line.into(),
        output: Some(output.iter().map(|line| (*line).to_owned()).collect()),
    };
    let expected = [
        (
            Setting::default(),
            Step::File {
                name: "job.py".into(),
                text: "# job.py\nprint(1)\n".into(),
            },
        ),
        (
            Setting::NOWHERE,
            Step::Command {
                line: "one".into(),
                output: None,
            },
        ),
        (Setting::default(), command("two \\\n  and", &["printed"])),
        (Setting::default(), command("three", &[])),
    ];
    assert_eq!(steps(text), expected);
    let setting = Setting::of("<!-- as user, beside a mirror -->").expect("a setting");
    assert_eq!(setting.audience, Audience::User);
    assert_eq!(setting.world, World::Mirror);
    assert_eq!(Setting::of("<!-- a remark -->"), None);
}
