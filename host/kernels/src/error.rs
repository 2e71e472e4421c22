//! What can go wrong in this crate: always a mistake in what was asked for, never in the numbers.

/// An error of the kernels: a request that does not fit the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A tensor type id that no ggml release has defined.
    #[error("tensor type {0} is not known; convert the file with a current tool")]
    UnknownType(u32),
    /// A tensor type that ggml once had and dropped.
    #[error("tensor type {id} ({name}) was removed from the format; quantize the model again")]
    RemovedType {
        /// The id in the file.
        id: u32,
        /// The name the type had.
        name: &'static str,
    },
    /// A row whose length the type's block does not divide.
    #[error("{quant} needs rows in multiples of {block} values, found {cols}")]
    RowLength {
        /// The type's name.
        quant: &'static str,
        /// Values per block.
        block: usize,
        /// Values in the row.
        cols: usize,
    },
    /// A buffer of another size than the request needs.
    #[error("{what}: expected {expected} elements, found {found}")]
    Length {
        /// Which buffer.
        what: &'static str,
        /// Elements needed.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// An index past the end.
    #[error("{what}: index {index} is not below {limit}")]
    Index {
        /// What was indexed.
        what: &'static str,
        /// The index given.
        index: usize,
        /// The first index that is out of range.
        limit: usize,
    },
    /// A size that does not fit this machine's address space.
    #[error("{0} does not fit in memory")]
    TooLarge(&'static str),
    /// An operation this type does not have.
    #[error("{quant} cannot {operation}")]
    Unsupported {
        /// The type's name.
        quant: &'static str,
        /// What was asked of it.
        operation: &'static str,
    },
    /// Activations that were not prepared for the matrix they meet.
    #[error("activations were not prepared for a {0} matrix; name it in `Act::prepare`")]
    NotPrepared(&'static str),
    /// A position that a windowed cache has overwritten.
    #[error(
        "cannot go on from position {position}: the window's cache begins at {first}; read the context again"
    )]
    Lost {
        /// The position asked for.
        position: usize,
        /// The first one that is still there.
        first: usize,
    },
    /// Packed bytes in a layout that this build does not read for their type.
    #[error("{quant}: packed layout {found:#x} is not the one this build reads; pack again")]
    Layout {
        /// The type's name.
        quant: &'static str,
        /// The layout found.
        found: u32,
    },
    /// Parameters that contradict each other.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Checks a buffer's length.
pub(crate) fn expect_len(
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), KernelError> {
    if expected == found { Ok(()) } else { Err(KernelError::Length { what, expected, found }) }
}
