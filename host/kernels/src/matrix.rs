//! A weight matrix: rows of one tensor type, as the file holds them or packed for the kernels.

use std::cell::RefCell;
use std::sync::Arc;

use crate::act::Need;
use crate::bytes::Bytes;
use crate::codec;
use crate::error::{KernelError, expect_len};
use crate::isa::{self, Isa};
use crate::panel::{Layout, LayoutId, Panels};
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
    data: Data,
    row_bytes: usize,
}

/// The weights themselves.
enum Data {
    /// In the file's layout.
    Raw(Bytes),
    /// In panels.
    Packed(Panels),
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
        Ok(Matrix {
            inner: Arc::new(Inner { quant, rows, cols, data: Data::Raw(data), row_bytes }),
        })
    }

    /// A matrix over packed bytes that [`Matrix::packed_bytes`] once gave, as a package keeps
    /// them. What the numbers are is not checked: keep a digest beside the bytes.
    ///
    /// # Errors
    /// The layout is not one this build reads, is not the type's, or the bytes have another
    /// length than the shape needs or do not start at a multiple of 64.
    pub fn from_packed(
        quant: Quant,
        rows: usize,
        cols: usize,
        layout: LayoutId,
        data: Bytes,
    ) -> Result<Matrix, KernelError> {
        let expected = LayoutId::of(quant);
        let (true, Some(layout)) = (expected == Some(layout), Layout::of(quant)) else {
            return Err(KernelError::Layout { quant: quant.name(), found: layout.to_u32() });
        };
        let panels = Panels::shared(layout, rows, cols, data)?;
        let row_bytes = quant.row_bytes(cols)?;
        Ok(Matrix {
            inner: Arc::new(Inner { quant, rows, cols, data: Data::Packed(panels), row_bytes }),
        })
    }

    /// The layout of the packed bytes, if the matrix is packed.
    pub fn packed_layout(&self) -> Option<LayoutId> {
        self.panels().and_then(|panels| LayoutId::of(panels.layout.quant))
    }

    /// The packed bytes, if the matrix is packed: the same on every machine.
    pub fn packed_bytes(&self) -> Option<&[u8]> {
        self.panels().map(Panels::as_slice)
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
        if row >= self.rows() {
            return Err(KernelError::Index { what: "row", index: row, limit: self.rows() });
        }
        self.with_row(row, |bytes| codec::decode_blocks(self.quant(), bytes, out));
        Ok(())
    }

    /// The row and column of the first weight that is no finite number, or of the first weight of
    /// the block whose scale is none. Reads the scales of all blocks: for loading, not for use.
    pub fn first_nonfinite(&self) -> Option<(usize, usize)> {
        let quant = self.quant();
        (0..self.rows()).find_map(|row| {
            let mut found = None;
            self.with_row(row, |bytes| found = codec::first_nonfinite(quant, bytes));
            found.map(|column| (row, column))
        })
    }

    /// The same matrix in the layout this machine's kernels like best; itself if there is none.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn pack(&self) -> Result<Matrix, KernelError> {
        self.pack_for(isa::current())
    }

    /// [`Matrix::pack`] for a given instruction set.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn pack_for(&self, isa: Isa) -> Result<Matrix, KernelError> {
        if isa < Isa::Avx2 || self.is_packed() {
            return Ok(self.clone());
        }
        let Some(panels) = Panels::pack(self)? else { return Ok(self.clone()) };
        let inner = &self.inner;
        Ok(Matrix {
            inner: Arc::new(Inner {
                quant: inner.quant,
                rows: inner.rows,
                cols: inner.cols,
                data: Data::Packed(panels),
                row_bytes: inner.row_bytes,
            }),
        })
    }

    /// Whether the weights are in panels.
    pub fn is_packed(&self) -> bool {
        matches!(self.inner.data, Data::Packed(_))
    }

    /// [`Bytes::will_need`] for weights in the file's layout; packed ones are in memory.
    pub fn will_need(&self) {
        if let Data::Raw(bytes) = &self.inner.data {
            bytes.will_need();
        }
    }

    /// Bytes of the weights.
    pub fn memory(&self) -> usize {
        match &self.inner.data {
            Data::Raw(bytes) => bytes.len(),
            Data::Packed(panels) => panels.memory(),
        }
    }

    /// What its products need of the activations.
    pub(crate) fn need(&self, isa: Isa) -> Need {
        match self.quant().int_kind() {
            Some(kind) if isa >= Isa::Avx2 && self.is_packed() => Need::Tiles(kind.class),
            Some(kind) if isa >= Isa::Avx2 => Need::Either(kind.class),
            Some(kind) => Need::Rows(kind.class),
            None => Need::Floats,
        }
    }

    /// The panels, if it is packed.
    pub(crate) fn panels(&self) -> Option<&Panels> {
        match &self.inner.data {
            Data::Raw(_) => None,
            Data::Packed(panels) => Some(panels),
        }
    }

    /// The bytes of a row of a matrix that is not packed.
    pub(crate) fn row(&self, row: usize) -> Option<&[u8]> {
        let Data::Raw(bytes) = &self.inner.data else { return None };
        let start = row.checked_mul(self.inner.row_bytes)?;
        if row >= self.inner.rows {
            return None;
        }
        bytes.as_slice().get(start..start + self.inner.row_bytes)
    }

    /// The bytes of some rows of a matrix that is not packed.
    pub(crate) fn rows_bytes(&self, rows: std::ops::Range<usize>) -> Option<&[u8]> {
        let Data::Raw(bytes) = &self.inner.data else { return None };
        let at = |row: usize| row.checked_mul(self.inner.row_bytes);
        bytes.as_slice().get(at(rows.start)?..at(rows.end)?)
    }

    /// Calls `f` with a row in the file's layout, unpacked first if need be.
    pub(crate) fn with_row(&self, row: usize, f: impl FnOnce(&[u8])) {
        match &self.inner.data {
            Data::Raw(_) => {
                if let Some(bytes) = self.row(row) {
                    f(bytes);
                }
            }
            Data::Packed(panels) => UNPACKED.with_borrow_mut(|buffer| {
                buffer.resize(self.inner.row_bytes, 0);
                panels.unpack_row(row, buffer);
                f(buffer);
            }),
        }
    }
}

thread_local! {
    /// A packed row in the file's layout.
    static UNPACKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix({} {}x{})", self.quant(), self.rows(), self.cols())
    }
}
