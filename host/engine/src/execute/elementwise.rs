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

/// `work(data, results)` on all rows, in parallel if they are many numbers: every `block` numbers of a
/// row, and what is left of it, have one result.
pub(super) fn by_blocks(
    pool: &Pool,
    data: &mut [f32],
    width: usize,
    block: usize,
    results: &mut [f32],
    work: impl Fn(&mut [f32], &mut [f32]) + Sync,
) {
    let alone = data.len() <= ALONE || pool.threads() == 1;
    let blocks = width.div_ceil(block);
    let rows = data.chunks_mut(width).zip(results.chunks_mut(blocks));
    if alone {
        return rows.for_each(|(data, results)| work(data, results));
    }
    let share = blocks.div_ceil(pool.threads());
    let parts: Vec<Mutex<(&mut [f32], &mut [f32])>> = rows
        .flat_map(|(data, results)| {
            data.chunks_mut(share * block).zip(results.chunks_mut(share)).map(Mutex::new)
        })
        .collect();
    pool.run(&|worker| {
        for part in parts.iter().skip(worker).step_by(pool.threads()) {
            let (data, results) = &mut *part.lock().unwrap_or_else(PoisonError::into_inner);
            work(data, results);
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

#[cfg(test)]
mod tests {
    use gristmill_kernels::Pool;

    use super::{ALONE, by_blocks};

    /// Every block of every row is seen once, with its own result, however they are shared out.
    #[test]
    fn blocks_do_not_cross_rows() {
        let block = 256;
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads, false);
            for (rows, width) in [(1, ALONE + 1), (1, 7 * block), (3, ALONE), (8, 5 * block + 3)] {
                let mut data: Vec<f32> = (0..rows * width).map(|n| n as f32).collect();
                let blocks = width.div_ceil(block);
                let mut results = vec![0.0; rows * blocks];
                by_blocks(&pool, &mut data, width, block, &mut results, |data, results| {
                    for (data, result) in data.chunks_mut(block).zip(results) {
                        *result += data[0];
                        data.iter_mut().for_each(|number| *number += 0.5);
                    }
                });
                for (n, number) in data.iter().enumerate() {
                    assert_eq!(*number, n as f32 + 0.5, "{threads} {rows} {width}");
                }
                for (n, result) in results.iter().enumerate() {
                    let first = n / blocks * width + n % blocks * block;
                    assert_eq!(*result, first as f32, "{threads} {rows} {width}");
                }
            }
        }
    }
}
