//! Metadata values as they lie in the file: borrowed, already checked, decoded on access.

use gristmill_core::program::Value;

/// Arrays longer than this stay in the file; a family sees only their length.
const LONG: u64 = 4096;

/// The format's value types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 8 bits.
    U8,
    /// 8 bits, signed.
    I8,
    /// 16 bits.
    U16,
    /// 16 bits, signed.
    I16,
    /// 32 bits.
    U32,
    /// 32 bits, signed.
    I32,
    /// IEEE single.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// Length and UTF-8.
    Text,
    /// Element type, count, elements.
    Array,
    /// 64 bits.
    U64,
    /// 64 bits, signed.
    I64,
    /// IEEE double.
    F64,
}

impl Kind {
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Text,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of a value, where that is fixed.
    pub(crate) fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::Array => None,
        }
    }

    /// The format's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::F32 => "float32",
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Array => "array",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }
}

/// A metadata value, borrowed from the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Raw<'a> {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A floating-point number of either width.
    Float(f64),
    /// A truth value.
    Flag(bool),
    /// Text.
    Text(&'a str),
    /// An array.
    Array(Array<'a>),
}

/// An array as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    pub(crate) kind: Kind,
    pub(crate) len: u64,
    pub(crate) bytes: &'a [u8],
}

/// A number or truth value from exactly its bytes.
fn scalar<'a>(kind: Kind, bytes: &[u8]) -> Option<Raw<'a>> {
    Some(match kind {
        Kind::U8 => Raw::Unsigned(u64::from(*bytes.first()?)),
        Kind::I8 => Raw::Signed(i64::from(i8::from_le_bytes([*bytes.first()?]))),
        Kind::U16 => Raw::Unsigned(u64::from(u16::from_le_bytes(bytes.try_into().ok()?))),
        Kind::I16 => Raw::Signed(i64::from(i16::from_le_bytes(bytes.try_into().ok()?))),
        Kind::U32 => Raw::Unsigned(u64::from(u32::from_le_bytes(bytes.try_into().ok()?))),
        Kind::I32 => Raw::Signed(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        Kind::F32 => Raw::Float(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        Kind::Bool => Raw::Flag(*bytes.first()? != 0),
        Kind::U64 => Raw::Unsigned(u64::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I64 => Raw::Signed(i64::from_le_bytes(bytes.try_into().ok()?)),
        Kind::F64 => Raw::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
        Kind::Text | Kind::Array => return None,
    })
}

/// Splits a length-prefixed text off the front.
fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (text, rest) = spelling(bytes)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// The same, as bytes.
fn spelling(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// Splits an array's element type and count off the front.
fn array(bytes: &[u8]) -> Option<Array<'_>> {
    let (kind, rest) = bytes.split_first_chunk::<4>()?;
    let (len, bytes) = rest.split_first_chunk::<8>()?;
    let kind = Kind::from_id(u32::from_le_bytes(*kind))?;
    Some(Array { kind, len: u64::from_le_bytes(*len), bytes })
}

impl<'a> Raw<'a> {
    /// The value of this kind that starts these bytes; they were checked when the file was opened.
    pub(crate) fn decode(kind: Kind, bytes: &'a [u8]) -> Option<Self> {
        match kind {
            Kind::Text => text(bytes).map(|(text, _)| Self::Text(text)),
            Kind::Array => array(bytes).map(Self::Array),
            kind => scalar(kind, bytes.get(..kind.size()?)?),
        }
    }

    /// The format's word for what this is.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unsigned(_) => "an unsigned integer",
            Self::Signed(_) => "a signed integer",
            Self::Float(_) => "a float",
            Self::Flag(_) => "a bool",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
        }
    }

    /// As an integer, if it is one that fits.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Unsigned(value) => i64::try_from(*value).ok(),
            Self::Signed(value) => Some(*value),
            _ => None,
        }
    }

    /// The same as the contract's value; long and nested arrays become their length.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            // An integer beyond i64 has no exact place in the contract; its float is the nearest.
            Self::Unsigned(value) => {
                i64::try_from(*value).map_or(Value::Float(*value as f64), Value::Int)
            }
            Self::Signed(value) => Value::Int(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Flag(value) => Value::Flag(*value),
            Self::Text(value) => Value::Text((*value).to_owned()),
            Self::Array(array) if array.len > LONG => Value::Long(array.len),
            Self::Array(array) => match array.kind {
                Kind::Text => Value::Texts(array.texts().map(str::to_owned).collect()),
                Kind::F32 | Kind::F64 => Value::Floats(array.floats().collect()),
                Kind::Array => Value::Long(array.len),
                _ => Value::Ints(array.ints().collect()),
            },
        }
    }
}

impl<'a> Array<'a> {
    /// What its elements are.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements' bytes; the array may be followed by more of the file.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        let size = self.kind.size().unwrap_or(0).saturating_mul(self.len as usize);
        self.bytes.get(..size).unwrap_or_default()
    }

    /// The elements of an array of this kind of four bytes, for who takes very many; none of another.
    pub(crate) fn fours(&self, kind: Kind) -> Option<&'a [[u8; 4]]> {
        (self.kind == kind).then(|| self.bytes().as_chunks().0)
    }

    /// The texts of a string array; nothing of any other.
    pub fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.split(text)
    }

    /// The same as bytes, for who takes very many together and looks at them once.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.split(spelling)
    }

    fn split<T>(self, off: impl Fn(&'a [u8]) -> Option<(T, &'a [u8])>) -> impl Iterator<Item = T> {
        let mut rest = self.bytes;
        let count = if self.kind == Kind::Text { self.len } else { 0 };
        (0..count).map_while(move |_| {
            let (found, after) = off(rest)?;
            rest = after;
            Some(found)
        })
    }

    /// The integers (or truth values, as 0 and 1) of an array; nothing of any other.
    pub fn ints(&self) -> impl Iterator<Item = i64> + use<'a> {
        self.scalars().map_while(|value| match value {
            Raw::Flag(flag) => Some(i64::from(flag)),
            // Beyond i64 only bit patterns remain; no key of the format uses them.
            Raw::Unsigned(value) => Some(value as i64),
            Raw::Signed(value) => Some(value),
            _ => None,
        })
    }

    /// The floating-point numbers of an array; nothing of any other.
    pub fn floats(&self) -> impl Iterator<Item = f64> + use<'a> {
        self.scalars().map_while(|value| match value {
            Raw::Float(value) => Some(value),
            _ => None,
        })
    }

    fn scalars(&self) -> impl Iterator<Item = Raw<'a>> + use<'a> {
        let kind = self.kind;
        self.bytes()
            .chunks_exact(kind.size().unwrap_or(1))
            .map_while(move |chunk| scalar(kind, chunk))
    }
}
