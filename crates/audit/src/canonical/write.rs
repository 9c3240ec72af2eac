//! Writes values straight into their canonical text: fields are put in order where they stand.

use std::cmp::Ordering;
use std::fmt::Display;
use std::ops::Range;

use serde::ser::{self, Serialize};

use super::{MAX, NotCanonical, PLAIN, is_plain, raw_order, short};

type Done = Result<(), NotCanonical>;

impl ser::Error for NotCanonical {
    fn custom<T: Display>(message: T) -> Self {
        Self::Json(message.to_string())
    }
}

pub(super) struct Writer<'a> {
    pub out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn text(self, text: &str) -> Done {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn whole(self, size: u64, number: impl Display) -> Done {
        let text = number.to_string();
        if size > MAX {
            return Err(NotCanonical::Number(text));
        }
        self.text(&text)
    }
}

fn quote(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.push(b'"');
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if PLAIN[usize::from(*byte)] {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        plain = at + 1;
        match short(*byte) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => {
                let digits = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(digits[usize::from(byte >> 4)]);
                out.push(digits[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
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
        self.whole(value.unsigned_abs(), value)
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
        self.whole(value, value)
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
        quote(value, self.out);
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
        open_variant(variant, self.out);
        value.serialize(Writer { out: self.out })?;
        self.out.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<List<'a>, NotCanonical> {
        Ok(List::open(self.out, false))
    }

    fn serialize_tuple(self, _length: usize) -> Result<List<'a>, NotCanonical> {
        Ok(List::open(self.out, false))
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<List<'a>, NotCanonical> {
        Ok(List::open(self.out, false))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<List<'a>, NotCanonical> {
        open_variant(variant, self.out);
        Ok(List::open(self.out, true))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Fields<'a>, NotCanonical> {
        Ok(Fields::open(self.out, false))
    }

    fn serialize_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Fields<'a>, NotCanonical> {
        Ok(Fields::open(self.out, false))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Fields<'a>, NotCanonical> {
        open_variant(variant, self.out);
        Ok(Fields::open(self.out, true))
    }
}

fn open_variant(variant: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    quote(variant, out);
    out.push(b':');
}

pub(super) struct List<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
    /// The list is all there is of a variant, which has to be closed as well.
    variant: bool,
}

impl<'a> List<'a> {
    fn open(out: &'a mut Vec<u8>, variant: bool) -> Self {
        out.push(b'[');
        Self {
            out,
            first: true,
            variant,
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        value.serialize(Writer { out: self.out })
    }

    fn close(self) -> Done {
        self.out.push(b']');
        if self.variant {
            self.out.push(b'}');
        }
        Ok(())
    }
}

/// Fields that are written in any order, and sorted when the last one is there.
pub(super) struct Fields<'a> {
    out: &'a mut Vec<u8>,
    fields: Vec<Field>,
    variant: bool,
}

/// Where a field stands.
struct Field {
    /// The start of the name as a number of the same order; 0 if it takes more to tell.
    start: u64,
    /// Between the quotes.
    name: Range<usize>,
    all: Range<usize>,
}

impl Field {
    fn order(&self, other: &Self, out: &[u8]) -> Ordering {
        if self.start != other.start && self.start != 0 && other.start != 0 {
            return self.start.cmp(&other.start);
        }
        raw_order(&out[self.name.clone()], &out[other.name.clone()])
    }
}

/// Names of letters that stand for themselves have the order of their bytes.
fn start_of(name: &[u8]) -> u64 {
    let mut start = [0; 8];
    let length = name.len().min(8);
    start[..length].copy_from_slice(&name[..length]);
    let plain = start[..length].iter().all(|b| b.is_ascii() && *b != b'\\');
    if plain { u64::from_be_bytes(start) } else { 0 }
}

impl<'a> Fields<'a> {
    fn open(out: &'a mut Vec<u8>, variant: bool) -> Self {
        out.push(b'{');
        Self {
            out,
            fields: Vec::with_capacity(16),
            variant,
        }
    }

    fn name(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Done) -> Done {
        if !self.fields.is_empty() {
            self.out.push(b',');
        }
        let start = self.out.len();
        write(self.out)?;
        let end = self.out.len();
        if self.out.get(start) != Some(&b'"') {
            return Err(NotCanonical::Json("a name must be a text".into()));
        }
        self.out.push(b':');
        self.fields.push(Field {
            start: start_of(&self.out[start + 1..end - 1]),
            name: start + 1..end - 1,
            all: start..end,
        });
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(Writer { out: self.out })?;
        if let Some(field) = self.fields.last_mut() {
            field.all.end = self.out.len();
        }
        Ok(())
    }

    fn close(mut self) -> Done {
        let sorted = |out: &[u8], fields: &[Field]| {
            let mut pairs = fields.windows(2);
            pairs.all(|pair| pair[0].order(&pair[1], out) == Ordering::Less)
        };
        if !sorted(self.out, &self.fields) {
            let out = &*self.out;
            self.fields.sort_by(|a, b| a.order(b, out));
            if !sorted(out, &self.fields) {
                return Err(NotCanonical::Twice);
            }
            self.arrange();
        }
        self.out.push(b'}');
        if self.variant {
            self.out.push(b'}');
        }
        Ok(())
    }

    /// Puts the fields where they belong.
    fn arrange(&mut self) {
        let Some(start) = self.fields.iter().map(|field| field.all.start).min() else {
            return;
        };
        let written = self.out.split_off(start);
        for (place, field) in self.fields.iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            let range = field.all.start - start..field.all.end - start;
            self.out.extend_from_slice(&written[range]);
        }
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
                self.name(|out| {
                    quote(name, out);
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
        self.name(|out| key.serialize(Writer { out }))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.value(value)
    }

    fn end(self) -> Done {
        self.close()
    }
}
