//! A weight matrix: rows of one tensor type, as the file holds them or packed for the kernels.

use std::sync::Arc;

use crate::act::Need;
use crate::bytes::Bytes;
use crate::codec;
use crate::error::{KernelError, expect_len};
use crate::isa::Isa;
use crate::quant::Quant;

/// A weight matrix of `rows` outputs and `cols` inputs. Clones share the weights.
#[derive(Clone)]
pub struct Matrix {
    inner: Arc<Inner>,
}

struct Inner {
    quant: Quant,
    rows: usize,
    cols: usize,
    data: Bytes,
    row_bytes: usize,
}

impl Matrix {
    /// A matrix over bytes in the file's layout: row after row, each of whole blocks.
    ///
    /// # Errors
    /// The block does not divide `cols`, or the bytes are not exactly `rows` rows.
    pub fn new(quant: Quant, rows: usize, cols: usize, data: Bytes) -> Result<Matrix, KernelError> {
        let row_bytes = quant.row_bytes(cols)?;
        let total = row_bytes.checked_mul(rows).ok_or(KernelError::TooLarge("a matrix"))?;
        expect_len("bytes of the matrix", total, data.len())?;
        Ok(Matrix { inner: Arc::new(Inner { quant, rows, cols, data, row_bytes }) })
    }

    /// Number of outputs.
    pub fn rows(&self) -> usize {
        self.inner.rows
    }

    /// Number of inputs.
    pub fn cols(&self) -> usize {
        self.inner.cols
    }

    /// The tensor type.
    pub fn quant(&self) -> Quant {
        self.inner.quant
    }

    /// Decodes row `row` into `out` (`cols` values).
    ///
    /// # Errors
    /// There is no such row, or `out` has another length.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) -> Result<(), KernelError> {
        expect_len("decoded row", self.cols(), out.len())?;
        let bytes = self.row(row).ok_or(KernelError::Index {
            what: "row",
            index: row,
            limit: self.rows(),
        })?;
        codec::decode_blocks(self.quant(), bytes, out);
        Ok(())
    }

    /// The same matrix in the layout this machine's kernels like best; itself if there is none.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn pack(&self) -> Result<Matrix, KernelError> {
        Ok(self.clone())
    }

    /// Bytes of the weights.
    pub fn memory(&self) -> usize {
        self.inner.data.len()
    }

    /// What its products need of the activations.
    pub(crate) fn need(&self, _isa: Isa) -> Need {
        match self.quant().int_kind() {
            Some(kind) => Need::Rows(kind.class),
            None => Need::Floats,
        }
    }

    /// The bytes of a row.
    pub(crate) fn row(&self, row: usize) -> Option<&[u8]> {
        let start = row.checked_mul(self.inner.row_bytes)?;
        if row >= self.inner.rows {
            return None;
        }
        self.inner.data.as_slice().get(start..start + self.inner.row_bytes)
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix({} {}x{})", self.quant(), self.rows(), self.cols())
    }
}
