//! The name of a packed byte layout, for files that keep packed weights.

use super::layout::Layout;
use crate::error::KernelError;
use crate::quant::Quant;

/// Version of all packed layouts. Any change of what packed bytes mean raises it.
const VERSION: u32 = 1;

/// Names a packed byte layout: what a package writes beside the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayoutId(u32);

impl LayoutId {
    /// Rows of a panel. Panels lie one after the other: rows packed in runs of whole panels are the
    /// matrix packed at once.
    pub const ROWS: usize = super::layout::ROWS;

    /// The layout this build packs a type into, if it has one.
    pub fn of(quant: Quant) -> Option<LayoutId> {
        Layout::of(quant).map(|_| LayoutId(VERSION << 16 | quant.id()))
    }

    /// The layout of a number from [`LayoutId::to_u32`]. Whether this build reads it is asked by
    /// [`crate::Matrix::from_packed`].
    pub const fn from_u32(id: u32) -> LayoutId {
        LayoutId(id)
    }

    /// A number for files.
    pub const fn to_u32(self) -> u32 {
        self.0
    }

    /// Bytes that a matrix of this layout takes.
    ///
    /// # Errors
    /// This build does not know the layout, the type's block does not divide `cols`, or the size
    /// does not fit this machine.
    pub fn bytes(self, rows: usize, cols: usize) -> Result<usize, KernelError> {
        let quant = Quant::from_id(self.0 & 0xffff)?;
        let layout = Layout::of(quant)
            .filter(|_| LayoutId::of(quant) == Some(self))
            .ok_or(KernelError::Layout { quant: quant.name(), found: self.0 })?;
        quant.row_bytes(cols)?;
        layout.total_bytes(rows, cols).ok_or(KernelError::TooLarge("a packed matrix"))
    }
}
