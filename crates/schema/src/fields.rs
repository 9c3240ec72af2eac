//! Tables of fields: what a field may contain, what it means, and what it is when it is missing.

/// A key of a map in a file. The reader, the JSON Schema and the reference page use it.
#[derive(Debug)]
pub struct Field {
    /// The key, as it is written.
    pub name: &'static str,
    /// What the value may be.
    pub kind: FieldKind,
    /// Whether a map without the key is an error.
    pub required: bool,
    /// May be `null`, which means the same as leaving it out.
    pub nullable: bool,
    /// As JSON.
    pub default: Option<&'static str>,
    /// The meaning, in Markdown.
    pub about: &'static str,
}

/// What the value of a field may be.
#[derive(Clone, Copy, Debug)]
pub enum FieldKind {
    /// Text, which may be empty.
    Text,
    /// Text of at least one character.
    Name,
    /// `true` or `false`.
    Flag,
    /// An integer in a range.
    Integer {
        /// The least value that is valid.
        min: i64,
        /// The greatest value that is valid.
        max: i64,
    },
    /// A number in a range, with or without a fraction.
    Number {
        /// The least value that is valid.
        min: f64,
        /// The greatest value that is valid.
        max: f64,
    },
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// Any value at all.
    Any,
    /// A list of texts, each with its own syntax.
    List {
        /// What the items are, in the plural.
        items: &'static str,
        /// For the JSON Schema. The reader is stricter.
        pattern: &'static str,
    },
    /// A list of some of these.
    Choices(&'static [&'static str]),
    /// Names of variables and their values.
    Variables,
    /// A map of these fields.
    Object(&'static [Field]),
    /// A list of maps of these fields.
    Objects(&'static [Field]),
    /// A map from names that people choose to maps of these fields.
    Named(&'static [Field]),
    /// A list of texts, at least one.
    Words,
    /// A path, or a map that another table describes.
    PathOrMap {
        /// What the map is, in Markdown.
        map: &'static str,
    },
}

impl Field {
    /// A field that may be left out, may not be `null`, and has no default.
    pub const fn new(name: &'static str, kind: FieldKind, about: &'static str) -> Self {
        Self {
            name,
            kind,
            required: false,
            nullable: false,
            default: None,
            about,
        }
    }

    /// Makes it an error to leave the field out.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Accepts `null`, with the same meaning as leaving the field out.
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// What applies when the field is left out, as JSON. Only documentation: no reader uses it.
    pub const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }
}
