//! A serde serializer that writes canonical text directly, and sorts the fields of an object in place.

use std::cmp::Ordering;
use std::fmt::{self, Display, Write};

use serde::ser::{self, Serialize};

use super::{HIGH, MAX, NotCanonical, PLAIN, equal, is_plain, raw_order, short};

type Done = Result<(), NotCanonical>;

impl ser::Error for NotCanonical {
    fn custom<T: Display>(message: T) -> Self {
        Self::Json(message.to_string())
    }
}

/// The text so far, and the buffers to sort it. Reused, so that most records allocate nothing.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub text: String,
    /// The fields of all objects that are open, the innermost last.
    fields: Vec<Field>,
    moved: String,
}

impl Buffer {
    /// Adds the text of a value, or nothing.
    pub(super) fn add(&mut self, value: &(impl Serialize + ?Sized)) -> Done {
        let start = self.text.len();
        let done = value.serialize(Writer(self));
        if done.is_err() {
            self.text.truncate(start);
            self.fields.clear();
        }
        done
    }
}

struct Writer<'a>(&'a mut Buffer);

impl Writer<'_> {
    fn text(self, text: &str) -> Done {
        self.0.text.push_str(text);
        Ok(())
    }

    fn whole(self, negative: bool, size: u64) -> Done {
        let sign = if negative { "-" } else { "" };
        if size > MAX {
            return Err(NotCanonical::Number(format!("{sign}{size}")));
        }
        self.0.text.push_str(sign);
        digits(size, &mut self.0.text);
        Ok(())
    }
}

fn digits(mut number: u64, out: &mut String) {
    let mut room = [0; 20];
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend(room[start..].iter().copied().map(char::from));
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

fn escape(text: &str, out: &mut String) {
    let bytes = text.as_bytes();
    if is_plain(bytes) {
        out.push_str(text);
        return;
    }
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if PLAIN[usize::from(*byte)] {
            continue;
        }
        out.push_str(&text[plain..at]);
        plain = at + 1;
        match short(*byte) {
            Some(letter) => out.extend(['\\', char::from(letter)]),
            None => {
                let digits = b"0123456789abcdef";
                let digit = |value: u8| char::from(digits[usize::from(value)]);
                out.push_str("\\u00");
                out.extend([digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out.push_str(&text[plain..]);
}

/// Takes what is between quotes, piece by piece.
struct Quoted<'a>(&'a mut String);

impl Write for Quoted<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(text, self.0);
        Ok(())
    }
}

impl<'a> ser::Serializer for Writer<'a> {
    type Ok = ();
    type Error = NotCanonical;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Fields<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Fields<'a>;

    fn serialize_bool(self, value: bool) -> Done {
        self.text(if value { "true" } else { "false" })
    }

    fn serialize_i8(self, value: i8) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Done {
        self.whole(value < 0, value.unsigned_abs())
    }

    fn serialize_u8(self, value: u8) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Done {
        self.whole(false, value)
    }

    fn serialize_f32(self, value: f32) -> Done {
        Err(NotCanonical::Number(value.to_string()))
    }

    fn serialize_f64(self, value: f64) -> Done {
        Err(NotCanonical::Number(value.to_string()))
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Done {
        quote(value, &mut self.0.text);
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Done {
        let out = &mut self.0.text;
        out.push('"');
        write!(Quoted(out), "{value}").map_err(ser::Error::custom)?;
        out.push('"');
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> Done {
        self.text("null")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.text("null")
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Done {
        self.text("null")
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        open_variant(variant, &mut self.0.text);
        value.serialize(Writer(&mut *self.0))?;
        self.0.text.push('}');
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<List<'a>, NotCanonical> {
        Ok(List::open(self.0, false))
    }

    fn serialize_tuple(self, _length: usize) -> Result<List<'a>, NotCanonical> {
        Ok(List::open(self.0, false))
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<List<'a>, NotCanonical> {
        Ok(List::open(self.0, false))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<List<'a>, NotCanonical> {
        open_variant(variant, &mut self.0.text);
        Ok(List::open(self.0, true))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Fields<'a>, NotCanonical> {
        Ok(Fields::open(self.0, false))
    }

    fn serialize_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Fields<'a>, NotCanonical> {
        Ok(Fields::open(self.0, false))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Fields<'a>, NotCanonical> {
        open_variant(variant, &mut self.0.text);
        Ok(Fields::open(self.0, true))
    }
}

fn open_variant(variant: &str, out: &mut String) {
    out.push('{');
    quote(variant, out);
    out.push(':');
}

struct List<'a> {
    buffer: &'a mut Buffer,
    first: bool,
    /// The list is all there is of a variant, which has to be closed as well.
    variant: bool,
}

impl<'a> List<'a> {
    fn open(buffer: &'a mut Buffer, variant: bool) -> Self {
        buffer.text.push('[');
        Self {
            buffer,
            first: true,
            variant,
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        if !std::mem::take(&mut self.first) {
            self.buffer.text.push(',');
        }
        value.serialize(Writer(self.buffer))
    }

    fn close(self) -> Done {
        self.buffer
            .text
            .push_str(if self.variant { "]}" } else { "]" });
        Ok(())
    }
}

/// Fields that are written in any order, and sorted when the last one is there.
struct Fields<'a> {
    buffer: &'a mut Buffer,
    /// Where they begin among the fields of all open objects, and in the text.
    first: usize,
    start: usize,
    variant: bool,
}

/// The range of a field in the text.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// The first letters of the name as a number of the same order; 0 if that is not enough to compare.
    letters: u64,
    /// Of the name with its quotes, and of the value behind it.
    start: usize,
    name_end: usize,
    end: usize,
}

impl Field {
    fn order(&self, other: &Self, text: &str) -> Ordering {
        if self.letters != other.letters && self.letters != 0 && other.letters != 0 {
            return self.letters.cmp(&other.letters);
        }
        let name = |field: &Self| &text.as_bytes()[field.start + 1..field.name_end - 1];
        raw_order(name(self), name(other))
    }
}

/// Names without escapes have the order of their bytes.
fn letters(name: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = name.len().min(8);
    first[..length].copy_from_slice(&name[..length]);
    let word = u64::from_be_bytes(first);
    let plain = (word & HIGH) | equal(word, b'\\') == 0;
    if plain { word } else { 0 }
}

impl<'a> Fields<'a> {
    fn open(buffer: &'a mut Buffer, variant: bool) -> Self {
        buffer.text.push('{');
        Self {
            first: buffer.fields.len(),
            start: buffer.text.len(),
            buffer,
            variant,
        }
    }

    fn name(&mut self, write: impl FnOnce(&mut Buffer) -> Done) -> Done {
        if self.buffer.fields.len() > self.first {
            self.buffer.text.push(',');
        }
        let start = self.buffer.text.len();
        write(self.buffer)?;
        let text = &mut self.buffer.text;
        let name_end = text.len();
        if text.as_bytes().get(start) != Some(&b'"') {
            return Err(NotCanonical::Json("a name must be a text".into()));
        }
        self.buffer.fields.push(Field {
            letters: letters(&text.as_bytes()[start + 1..name_end - 1]),
            start,
            name_end,
            end: name_end,
        });
        text.push(':');
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(Writer(self.buffer))?;
        let end = self.buffer.text.len();
        if let Some(field) = self.buffer.fields.last_mut() {
            field.end = end;
        }
        Ok(())
    }

    fn close(self) -> Done {
        let Buffer {
            text,
            fields,
            moved,
        } = self.buffer;
        let own = &mut fields[self.first..];
        let sorted = |fields: &[Field], text: &str| {
            let mut pairs = fields.windows(2);
            pairs.all(|pair| pair[0].order(&pair[1], text) == Ordering::Less)
        };
        if !sorted(own, text) {
            own.sort_unstable_by(|a, b| a.order(b, text));
            if !sorted(own, text) {
                return Err(NotCanonical::Twice);
            }
            moved.clear();
            moved.push_str(&text[self.start..]);
            text.truncate(self.start);
            for (place, field) in own.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                text.push_str(&moved[field.start - self.start..field.end - self.start]);
            }
        }
        fields.truncate(self.first);
        text.push_str(if self.variant { "}}" } else { "}" });
        Ok(())
    }
}

macro_rules! lists {
    ($($kind:ident :: $item:ident),*) => {$(
        impl ser::$kind for List<'_> {
            type Ok = ();
            type Error = NotCanonical;

            fn $item<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
                self.item(value)
            }

            fn end(self) -> Done {
                self.close()
            }
        }
    )*};
}

lists!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! structs {
    ($($kind:ident),*) => {$(
        impl ser::$kind for Fields<'_> {
            type Ok = ();
            type Error = NotCanonical;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Done {
                self.name(|buffer| {
                    quote(name, &mut buffer.text);
                    Ok(())
                })?;
                self.value(value)
            }

            fn end(self) -> Done {
                self.close()
            }
        }
    )*};
}

structs!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = NotCanonical;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.name(|buffer| key.serialize(Writer(buffer)))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.value(value)
    }

    fn end(self) -> Done {
        self.close()
    }
}
