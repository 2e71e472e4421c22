//! What lies where in a package file, and how each byte of it is covered by a digest.
//!
//! ```text
//! 0       "GRSTPACK"
//! 8       version of this format, u32; four zero bytes
//! 16      where the index begins = where the weights end, u64
//! 24      bytes of the index, u64; it ends the file
//! 32      XXH3 (128 bits) of the index
//! 48      XXH3 (128 bits) of the 48 bytes above
//! 64      zeros to 4096
//! 4096    the packed tensors: each starts at a multiple of 64, those of 64 KiB and more at one of
//!         4096; zeros between them
//! ...     the index: JSON, with the XXH3 of every 2 MiB of what lies before it, without the first
//!         page
//! ```
//!
//! Integers are little endian. The index comes last, so that packing streams. The digests find damage,
//! and at the speed of memory; they are no signature: who may write here could write them, too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// The version this build writes, and the only one it reads.
pub(super) const VERSION: u32 = 2;
/// Bytes before the first tensor: one page.
pub(super) const START: u64 = 4096;
/// Bytes one digest covers: a huge page, and enough pieces for every processor to have some.
pub(super) const CHUNK: usize = 2 << 20;
/// Tensors this large begin a page.
pub(super) const PAGED: u64 = 64 << 10;
/// An index comes nowhere near; a bigger one is not one.
const MOST_INDEX: u64 = 64 << 20;

const MAGIC: &[u8; 8] = b"GRSTPACK";

/// One packed tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The tensor's type, by its ggml id.
    pub quant: u32,
    /// Rows of one matrix.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Matrices, one after the other: experts.
    pub count: usize,
    /// The packed layout's number.
    pub layout: u32,
    /// Where the first matrix begins in the file.
    pub(super) offset: u64,
    /// Bytes of one matrix.
    pub(super) bytes: u64,
}

/// Everything a package says about itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    /// The digest of the model it was packed from.
    pub(super) source: String,
    /// The kernels it was packed for.
    pub(super) kind: String,
    /// Sorted, so that packing twice gives the same bytes.
    pub(super) tensors: BTreeMap<String, Section>,
    /// [`digest`] of every [`CHUNK`] bytes.
    pub(super) chunks: Vec<String>,
}

/// Of some of the weights, in hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// The first page, for an index of these bytes that begins at `end`.
pub(super) fn head(end: u64, index: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(START as usize);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 4]);
    out.extend(end.to_le_bytes());
    out.extend((index.len() as u64).to_le_bytes());
    out.extend(XxHash3_128::oneshot(index).to_le_bytes());
    let digest = XxHash3_128::oneshot(&out);
    out.extend(digest.to_le_bytes());
    out.resize(START as usize, 0);
    out
}

/// Reads the first page and the index of a file of these bytes. The second is where the weights
/// end. Errors say what is wrong, for a sentence that names the file.
pub(super) fn index(file: &[u8]) -> Result<(Index, u64), String> {
    let page = file.get(..START as usize).ok_or("it is shorter than its first page")?;
    let word = |at: usize| {
        page.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    if page.get(..8) != Some(MAGIC) {
        return Err("it does not begin as a package does".to_owned());
    }
    // Before the digest, so that a file of another version is told from a damaged one.
    let version = word(8);
    if version != u64::from(VERSION) {
        return Err(format!("its format has version {version}, this build reads {VERSION}"));
    }
    let is = |bytes: &[u8], known| XxHash3_128::oneshot(bytes).to_le_bytes() == known;
    let (head, rest) = page.split_first_chunk::<48>().ok_or("it is shorter than its head")?;
    let (known, rest) = rest.split_first_chunk::<16>().ok_or("it is shorter than its head")?;
    if !is(head, *known) || rest.iter().any(|byte| *byte != 0) {
        return Err("its first page is damaged".to_owned());
    }
    let (end, length) = (word(16), word(24));
    if length > MOST_INDEX || end < START || end.checked_add(length) != Some(file.len() as u64) {
        return Err(format!("it has {} bytes, its first page tells of others", file.len()));
    }
    let bytes = usize::try_from(end).ok().and_then(|end| file.get(end..)).unwrap_or_default();
    let known = head.last_chunk::<16>().copied().unwrap_or_default();
    if !is(bytes, known) {
        return Err("its index is damaged".to_owned());
    }
    let index: Index = serde_json::from_slice(bytes).map_err(|error| format!("index: {error}"))?;
    for (name, section) in &index.tensors {
        let total = section.bytes.checked_mul(section.count as u64);
        let fits = total.and_then(|total| total.checked_add(section.offset));
        if section.offset < START
            || !section.offset.is_multiple_of(64)
            || !section.bytes.is_multiple_of(64)
            || fits.is_none_or(|fits| fits > end)
        {
            return Err(format!("index: `{name}` lies outside the weights"));
        }
    }
    Ok((index, end))
}
