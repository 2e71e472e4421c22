//! Packed bytes leave the process and come back: the same products, and nothing that does not fit.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::Arc;

use common::{Rng, random_matrix};
use gristmill_kernels::{Bytes, KernelError, LayoutId, Matrix, Quant, isa::Isa};

/// Bytes aligned as a mapped file's are, after `skip` others.
struct Aligned(Vec<u8>, usize);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

fn aligned(bytes: &[u8], skip: usize) -> Bytes {
    let mut all = vec![0; bytes.len() + 128];
    let at = all.as_ptr().align_offset(64) + skip;
    all[at..at + bytes.len()].copy_from_slice(bytes);
    Bytes::new(Arc::new(Aligned(all, at)), 0..bytes.len()).unwrap()
}

#[test]
fn packed_bytes_make_the_same_matrix_again() {
    let mut rng = Rng::new(1);
    for quant in common::PACKED {
        let cols = 2 * quant.block_len().max(128);
        let raw = random_matrix(quant, 37, cols, &mut rng);
        assert!(raw.packed_layout().is_none() && raw.packed_bytes().is_none());
        let packed = raw.pack_for(Isa::Avx512).unwrap();
        let (layout, bytes) = (packed.packed_layout().unwrap(), packed.packed_bytes().unwrap());
        assert_eq!(Some(layout), LayoutId::of(quant));
        assert_eq!(layout.bytes(37, cols).unwrap(), bytes.len());
        let layout = LayoutId::from_u32(layout.to_u32());
        let back = Matrix::from_packed(quant, 37, cols, layout, aligned(bytes, 0)).unwrap();
        assert_eq!(back.packed_bytes(), Some(bytes));
        let (mut a, mut b) = (vec![0.0; cols], vec![0.0; cols]);
        for row in 0..37 {
            raw.row_f32(row, &mut a).unwrap();
            back.row_f32(row, &mut b).unwrap();
            assert_eq!(a, b, "{quant} row {row}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut rng = Rng::new(2);
    let packed = random_matrix(Quant::Q4_K, 16, 256, &mut rng).pack_for(Isa::Avx512).unwrap();
    let (layout, bytes) = (packed.packed_layout().unwrap(), packed.packed_bytes().unwrap());
    let make = |quant, rows, cols, layout, bytes| {
        Matrix::from_packed(quant, rows, cols, layout, bytes).map(|_| ()).unwrap_err()
    };
    let whole = || aligned(bytes, 0);
    assert!(matches!(make(Quant::Q4_K, 17, 256, layout, whole()), KernelError::Length { .. }));
    assert!(matches!(make(Quant::Q4_K, 16, 512, layout, whole()), KernelError::Length { .. }));
    assert!(matches!(make(Quant::Q4_K, 16, 100, layout, whole()), KernelError::RowLength { .. }));
    assert!(matches!(make(Quant::Q5_K, 16, 256, layout, whole()), KernelError::Layout { .. }));
    let newer = LayoutId::from_u32(layout.to_u32() + (1 << 16));
    let error = make(Quant::Q4_K, 16, 256, newer, whole());
    assert!(error.to_string().contains("pack again"), "{error}");
    assert!(newer.bytes(16, 256).is_err());
    let error = make(Quant::Q4_K, 16, 256, layout, aligned(bytes, 4));
    assert!(error.to_string().contains("64"), "{error}");
    assert!(layout.bytes(usize::MAX, usize::MAX / 256 * 256).is_err());
}
