//! Rows shared out to the pool: each worker takes one run of them.

use std::sync::{Mutex, PoisonError};

use gristmill_kernels::Pool;

/// Numbers below which one thread is faster than waking the others: 16 K of norm take about 2 µs.
const ALONE: usize = 16 << 10;

/// `work(rows, first)` on all rows, in parallel if they are many; `first` is the index of the first.
pub(super) fn by_rows(
    pool: &Pool,
    data: &mut [f32],
    width: usize,
    work: impl Fn(&mut [f32], usize) + Sync,
) {
    if data.len() <= ALONE || pool.threads() == 1 {
        return work(data, 0);
    }
    let share = (data.len() / width).div_ceil(pool.threads()).max(1);
    let parts: Vec<Mutex<&mut [f32]>> = data.chunks_mut(share * width).map(Mutex::new).collect();
    pool.run(&|worker| {
        if let Some(part) = parts.get(worker) {
            work(&mut part.lock().unwrap_or_else(PoisonError::into_inner), worker * share);
        }
    });
}

/// `work(in, out)` on all rows, in parallel if they are many.
pub(super) fn by_rows_from(
    pool: &Pool,
    x: &[f32],
    x_width: usize,
    out: &mut [f32],
    width: usize,
    work: impl Fn(&[f32], &mut [f32]) + Sync,
) {
    by_rows(pool, out, width, |out, first| {
        let rows = out.len() / width;
        if let Some(x) = x.get(first * x_width..(first + rows) * x_width) {
            work(x, out);
        }
    });
}
