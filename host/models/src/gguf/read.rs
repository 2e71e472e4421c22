//! Reads one file's header and checks all of it before anything believes it.
//!
//! Bounds: every length and count is compared with the bytes that remain before it is used;
//! arithmetic is checked; nothing is allocated from a claim. Arrays nest at most [`DEPTH`] deep.

use std::ops::Range;

use super::{
    element::Element,
    value::{Kind, Raw},
};

/// How deep arrays may nest; real files do not nest at all.
const DEPTH: u32 = 4;
/// The format's limit for keys, in bytes.
const KEY: u64 = 65_535;
/// The format's limit for tensor names, in bytes.
const NAME: u64 = 64;
/// The format's limit for dimensions.
const DIMENSIONS: u32 = 4;
/// Least bytes of a key with its value, and of a tensor's entry.
const ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
const TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// Alignment of the data when `general.alignment` does not say.
const ALIGNMENT: u64 = 32;

/// What is wrong, and where.
#[derive(Debug)]
pub(crate) struct Problem {
    pub field: String,
    pub expected: String,
    pub found: String,
}

type Result<T> = std::result::Result<T, Problem>;

fn problem<T>(
    field: impl Into<String>,
    expected: impl Into<String>,
    found: impl ToString,
) -> Result<T> {
    Err(Problem { field: field.into(), expected: expected.into(), found: found.to_string() })
}

/// A key, by place.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub name: Range<usize>,
    pub kind: Kind,
    pub value: usize,
}

/// A tensor's row in the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub name: Range<usize>,
    pub shape: Vec<u64>,
    pub element: Element,
    /// Where its bytes are in this file.
    pub range: Range<usize>,
}

/// A checked header.
#[derive(Debug)]
pub(crate) struct Header {
    pub version: u32,
    pub entries: Vec<Entry>,
    pub rows: Vec<Row>,
}

impl Header {
    /// The value of a key.
    pub(crate) fn get<'a>(&self, bytes: &'a [u8], key: &str) -> Option<Raw<'a>> {
        let entry = self
            .entries
            .iter()
            .find(|entry| bytes.get(entry.name.clone()) == Some(key.as_bytes()))?;
        Raw::decode(entry.kind, bytes.get(entry.value..)?)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `length` bytes; `field` is asked for only when they are missing.
    fn take(&mut self, length: u64, field: impl FnOnce() -> String) -> Result<&'a [u8]> {
        let remaining = self.remaining();
        let found = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes.get(self.at..)?.get(..length));
        match found {
            Some(found) => {
                self.at += found.len();
                Ok(found)
            }
            None => problem(
                field(),
                format!("{length} bytes"),
                format!("{remaining} bytes until the end of the file"),
            ),
        }
    }

    fn u32(&mut self, field: impl FnOnce() -> String) -> Result<u32> {
        let bytes = self.take(4, field)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    fn u64(&mut self, field: impl FnOnce() -> String) -> Result<u64> {
        let bytes = self.take(8, field)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// A length-prefixed UTF-8 text, and where it is.
    fn text(&mut self, field: &dyn Fn() -> String) -> Result<(&'a str, Range<usize>)> {
        let length = self.u64(|| format!("length of {}", field()))?;
        let start = self.at;
        let bytes = self.take(length, field)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok((text, start..self.at)),
            Err(error) => problem(
                field(),
                "UTF-8",
                format!("an invalid byte at {}", start + error.valid_up_to()),
            ),
        }
    }

    /// A key or tensor name: not empty, not longer than the format allows.
    fn name(&mut self, limit: u64, field: &dyn Fn() -> String) -> Result<(&'a str, Range<usize>)> {
        let before = self.at;
        let length = self.u64(|| format!("length of {}", field()))?;
        if length == 0 || length > limit {
            return problem(
                format!("length of {}", field()),
                format!("1 to {limit} bytes"),
                length,
            );
        }
        self.at = before;
        self.text(field)
    }

    /// Walks over a value, checking all of it.
    fn value(&mut self, kind: Kind, depth: u32, field: &dyn Fn() -> String) -> Result<()> {
        match kind {
            Kind::Text => {
                self.text(field)?;
            }
            Kind::Array => {
                if depth == DEPTH {
                    return problem(field(), format!("arrays nested at most {DEPTH} deep"), "more");
                }
                let element = self.kind(&|| format!("element type of {}", field()))?;
                let count = self.u64(|| format!("length of {}", field()))?;
                // A text needs at least its length, an array its type and length.
                let least = match element {
                    Kind::Text => 8,
                    Kind::Array => 12,
                    kind => kind.size().unwrap_or(1) as u64,
                };
                let room = self.remaining() / least;
                if count > room {
                    return problem(
                        format!("length of {}", field()),
                        format!(
                            "at most {room} elements of {}, which is what is left of the file",
                            element.name()
                        ),
                        count,
                    );
                }
                match element.size() {
                    Some(size) => {
                        let start = self.at;
                        let bytes = self.take(count.saturating_mul(size as u64), field)?;
                        if element == Kind::Bool
                            && let Some(at) = bytes.iter().position(|byte| *byte > 1)
                        {
                            return problem(
                                field(),
                                "bools of 0 or 1",
                                format!("another byte at {}", start + at),
                            );
                        }
                    }
                    None if element == Kind::Text && self.texts(count) => {}
                    None => {
                        for index in 0..count {
                            self.value(element, depth + 1, &|| format!("{}[{index}]", field()))?;
                        }
                    }
                }
            }
            kind => {
                let bytes = self.take(kind.size().unwrap_or(1) as u64, field)?;
                if kind == Kind::Bool
                    && let Some(byte) = bytes.first().filter(|byte| **byte > 1)
                {
                    return problem(field(), "a bool of 0 or 1", byte);
                }
            }
        }
        Ok(())
    }

    /// Walks over so many texts if all of them are sound, and otherwise stays where it is.
    ///
    /// A vocabulary is a quarter of a million short texts, each after its length. Where the bytes of
    /// the lengths are ASCII, no character goes from one text into the next, so what is UTF-8 as a
    /// whole is UTF-8 in each part, and vectors look at the whole.
    fn texts(&mut self, count: u64) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let sound =
            |from, to| rest.get(from..to).is_some_and(|it| simdutf8::basic::from_utf8(it).is_ok());
        let (mut begun, mut at) = (0, 0);
        for _ in 0..count {
            let Some(length) = rest.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
                return false;
            };
            if !length.is_ascii() {
                // A text of 128 bytes or more begins another whole.
                if !sound(begun, at) {
                    return false;
                }
                begun = at + 8;
            }
            let Ok(length) = usize::try_from(u64::from_le_bytes(*length)) else { return false };
            match (at + 8).checked_add(length) {
                Some(end) if end <= rest.len() => at = end,
                _ => return false,
            }
        }
        let all = sound(begun, at);
        if all {
            self.at += at;
        }
        all
    }

    fn kind(&mut self, field: &dyn Fn() -> String) -> Result<Kind> {
        let id = self.u32(field)?;
        match Kind::from_id(id) {
            Some(kind) => Ok(kind),
            None => problem(field(), "a value type from 0 to 12", id),
        }
    }
}

/// Reads and checks a file's header; `bytes` is the whole file, and its magic has been looked at.
pub(crate) fn header(bytes: &[u8]) -> Result<Header> {
    let mut cursor = Cursor { bytes, at: 0 };
    cursor.take(4, || "magic".to_owned())?;
    let version = version(cursor.u32(|| "version".to_owned())?)?;
    let tensors = cursor.u64(|| "tensor count".to_owned())?;
    let keys = cursor.u64(|| "key count".to_owned())?;
    let remaining = cursor.remaining();
    let fits =
        |count: u64, least: u64| count.checked_mul(least).is_some_and(|all| all <= remaining);
    if !fits(keys, ENTRY_BYTES) {
        return problem("key count", format!("at most {}", remaining / ENTRY_BYTES), keys);
    }
    if !fits(tensors, TENSOR_BYTES) {
        return problem("tensor count", format!("at most {}", remaining / TENSOR_BYTES), tensors);
    }

    let mut entries = Vec::new();
    for index in 0..keys {
        let (name, place) = cursor.name(KEY, &|| format!("key {index}"))?;
        let kind = cursor.kind(&|| format!("type of {name}"))?;
        let value = cursor.at;
        cursor.value(kind, 0, &|| name.to_owned())?;
        entries.push(Entry { name: place, kind, value });
    }
    if let Some(name) = duplicate(bytes, entries.iter().map(|entry| &entry.name)) {
        return problem(format!("key {name}"), "each key once", "it twice");
    }
    let mut header = Header { version, entries, rows: Vec::new() };
    let alignment = alignment(&header, bytes)?;

    let mut offsets = Vec::new();
    for index in 0..tensors {
        let (row, offset) = row(&mut cursor, index)?;
        header.rows.push(row);
        offsets.push(offset);
    }
    if let Some(name) = duplicate(bytes, header.rows.iter().map(|row| &row.name)) {
        return problem(format!("tensor {name}"), "each name once", "it twice");
    }
    place(&mut header.rows, &offsets, bytes, cursor.at, alignment)?;
    Ok(header)
}

fn version(version: u32) -> Result<u32> {
    match version {
        2 | 3 => Ok(version),
        1 => problem("version", "2 or 3", "1, whose layout is obsolete; convert the model again"),
        swapped if matches!(swapped.swap_bytes(), 1..=3) => {
            problem("byte order", "little endian", "big endian; convert the model again")
        }
        other => problem("version", "2 or 3", other),
    }
}

fn alignment(header: &Header, bytes: &[u8]) -> Result<u64> {
    match header.get(bytes, "general.alignment") {
        None => Ok(ALIGNMENT),
        Some(Raw::Unsigned(value)) if value.is_power_of_two() && value <= u64::from(u32::MAX) => {
            Ok(value)
        }
        Some(Raw::Unsigned(value)) => problem("general.alignment", "a power of two", value),
        Some(other) => problem("general.alignment", "an unsigned integer", other.name()),
    }
}

/// One row of the tensor table, with its offset into the data.
fn row(cursor: &mut Cursor<'_>, index: u64) -> Result<(Row, u64)> {
    let (name, place) = cursor.name(NAME, &|| format!("name of tensor {index}"))?;
    let field = |what: &str| format!("{what} of tensor {name}");
    let dimensions = cursor.u32(|| field("dimensions"))?;
    if dimensions == 0 || dimensions > DIMENSIONS {
        return problem(field("dimensions"), format!("1 to {DIMENSIONS}"), dimensions);
    }
    let mut shape = Vec::with_capacity(dimensions as usize);
    for _ in 0..dimensions {
        shape.push(cursor.u64(|| field("shape"))?);
    }
    let id = cursor.u32(|| field("type"))?;
    let element = match Element::from_id(id) {
        Ok(element) => element,
        Err(found) => return problem(field("type"), "a tensor type this build knows", found),
    };
    let values = shape.iter().try_fold(1_u64, |all, length| all.checked_mul(*length));
    let values = match values {
        Some(values) if values > 0 && values <= i64::MAX as u64 => values,
        _ => {
            return problem(
                field("shape"),
                "dimensions above 0 whose product fits 63 bits",
                format!("{shape:?}"),
            );
        }
    };
    let columns = shape.first().copied().unwrap_or(0);
    if columns % element.block != 0 {
        return problem(
            field("shape"),
            format!("rows of whole {} blocks of {}", element.name, element.block),
            format!("rows of {columns}"),
        );
    }
    let Some(size) = (values / element.block)
        .checked_mul(element.bytes)
        .and_then(|size| usize::try_from(size).ok())
    else {
        return problem(
            field("size"),
            "fewer than 2^64 bytes",
            format!("{shape:?} {}", element.name),
        );
    };
    let offset = cursor.u64(|| field("offset"))?;
    Ok((Row { name: place, shape, element, range: 0..size }, offset))
}

/// Turns offsets into places in the file: aligned, inside, and no two over each other.
fn place(
    rows: &mut [Row],
    offsets: &[u64],
    bytes: &[u8],
    end_of_table: usize,
    alignment: u64,
) -> Result<()> {
    let data = (end_of_table as u64).checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    let length = bytes.len() as u64;
    for (row, offset) in rows.iter_mut().zip(offsets) {
        let name = || name(bytes, &row.name);
        if offset % alignment != 0 {
            return problem(
                format!("offset of tensor {}", name()),
                format!("a multiple of {alignment}"),
                offset,
            );
        }
        let size = row.range.end as u64;
        let start = data.checked_add(*offset);
        let end = start.and_then(|start| start.checked_add(size));
        match (start, end) {
            (Some(start), Some(end)) if end <= length => {
                row.range = start as usize..end as usize;
            }
            _ => {
                return problem(
                    format!("data of tensor {}", name()),
                    format!("{size} bytes from offset {offset}"),
                    format!(
                        "{} bytes of data in the file; it is cut short or its table is wrong",
                        length.saturating_sub(data)
                    ),
                );
            }
        }
    }
    let mut order: Vec<&Row> = rows.iter().collect();
    order.sort_unstable_by_key(|row| row.range.start);
    for pair in order.windows(2) {
        if let [first, second] = pair
            && second.range.start < first.range.end
        {
            return problem(
                format!("data of tensor {}", name(bytes, &second.name)),
                "its own bytes",
                format!("bytes that belong to {}", name(bytes, &first.name)),
            );
        }
    }
    Ok(())
}

/// The text at a checked place.
pub(crate) fn name<'a>(bytes: &'a [u8], place: &Range<usize>) -> &'a str {
    bytes.get(place.clone()).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
}

/// The first name that occurs twice.
fn duplicate<'a>(
    bytes: &'a [u8],
    names: impl Iterator<Item = &'a Range<usize>>,
) -> Option<&'a str> {
    let mut names: Vec<&str> = names.map(|place| name(bytes, place)).collect();
    names.sort_unstable();
    names.windows(2).find_map(|pair| match pair {
        [first, second] if first == second => Some(*first),
        _ => None,
    })
}
