//! Matrix products: `out = scale * (W x) + bias`, for any number of tokens and several matrices
//! at once.
#![allow(unsafe_code, reason = "workers write disjoint rows of one output")]

use std::cell::RefCell;
use std::ops::Range;

use crate::act::{Act, FEW, Need};
use crate::codec;
use crate::dot;
use crate::error::{KernelError, expect_len};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::memory::{Buf, Parts};
use crate::ops::{self, Activation};
use crate::pool::Pool;
use crate::quant::Quant;

/// One product of a [`linear`] phase.
pub struct Job<'a> {
    /// The weights.
    pub matrix: &'a Matrix,
    /// Added to every token's output (`rows` values).
    pub bias: Option<&'a [f32]>,
    /// Multiplies the product, before the bias.
    pub scale: f32,
    /// `n * rows` values, token after token.
    pub out: &'a mut [f32],
    /// Whether to add to `out` instead of replacing it.
    pub accumulate: bool,
}

/// Rows per panel: the unit of work and of the packed layouts.
pub(crate) const PANEL: usize = 16;

/// What happens to a product on its way out.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    pub(crate) scale: f32,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) accumulate: bool,
}

impl Epilogue<'_> {
    pub(crate) const PLAIN: Epilogue<'static> =
        Epilogue { scale: 1.0, bias: None, accumulate: false };

    #[inline(always)]
    fn apply(&self, product: f32, row: usize, out: &mut f32) {
        let mut y = product * self.scale;
        if let Some(bias) = self.bias.and_then(|bias| bias.get(row)) {
            y += bias;
        }
        *out = if self.accumulate { *out + y } else { y };
    }
}

/// Where the products of a matrix go.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) out: &'a Parts<'a, f32>,
    /// From a token to the next.
    pub(crate) stride: usize,
    /// The row that goes to the start.
    pub(crate) origin: usize,
    /// Which tokens they are, if not the first ones.
    pub(crate) tokens: Option<&'a [u32]>,
}

#[allow(clippy::indexing_slicing, reason = "tokens are counted before they are named")]
impl Target<'_> {
    /// Where row `row` of the `token`-th token goes.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize, token: usize) -> usize {
        let token = self.tokens.map_or(token, |tokens| tokens[token] as usize);
        token * self.stride + row - self.origin
    }

    /// Panics unless the rows before `end` of the first `count` tokens are there.
    pub(crate) fn check(&self, end: usize, count: usize) {
        let last = match self.tokens {
            Some(tokens) => tokens[..count].iter().max().map_or(0, |token| *token as usize),
            None => count.saturating_sub(1),
        };
        // The end of the last token's rows is the furthest store.
        let _ = self.out.pointer(last * self.stride + end - self.origin);
    }
}

/// Computes all jobs in one phase.
///
/// # Errors
/// A buffer has another length than its job needs, or `act` was not prepared for a matrix.
pub fn linear(pool: &Pool, act: &Act, jobs: &mut [Job<'_>]) -> Result<(), KernelError> {
    let n = act.tokens();
    let mut tasks = Vec::with_capacity(jobs.len());
    let mut panels = 0;
    for job in jobs.iter_mut() {
        check(pool, act, job.matrix)?;
        let rows = job.matrix.rows();
        expect_len("output", n * rows, job.out.len())?;
        if let Some(bias) = job.bias {
            expect_len("bias", rows, bias.len())?;
        }
        let first = panels;
        // Whole pairs of panels, so that chunks split no pair.
        panels += rows.div_ceil(PANEL).next_multiple_of(2);
        let epilogue = Epilogue { scale: job.scale, bias: job.bias, accumulate: job.accumulate };
        let task = Task { matrix: job.matrix, epilogue, out: Parts::new(&mut *job.out) };
        tasks.push((first, panels, task));
    }
    if n == 0 {
        return Ok(());
    }
    let chunk = chunk_of(panels, pool.threads());
    pool.chunks(panels, chunk, &|_, range| {
        for (first, end, task) in &tasks {
            let (from, to) = (range.start.max(*first), range.end.min(*end));
            if from < to {
                task.panels(pool, act, from - first..to - first);
            }
        }
    });
    Ok(())
}

/// Computes `activation(gate x) * (up x)` in one phase; `out` has `n * rows` values.
///
/// # Errors
/// As for [`linear`], or gate and up differ in shape.
pub fn glu_linear(
    pool: &Pool,
    act: &Act,
    gate: &Matrix,
    up: &Matrix,
    activation: Activation,
    out: &mut [f32],
) -> Result<(), KernelError> {
    check(pool, act, gate)?;
    check(pool, act, up)?;
    let (n, rows) = (act.tokens(), gate.rows());
    expect_len("rows of up", rows, up.rows())?;
    expect_len("output", n * rows, out.len())?;
    let panels = rows.div_ceil(PANEL);
    let chunk = chunk_of(panels, pool.threads());
    let out = Parts::new(out);
    pool.chunks(panels, chunk, &|_, range| {
        let first = range.start * PANEL;
        let width = (range.end * PANEL).min(rows) - first;
        UP.with_borrow_mut(|scratch| {
            let ups = scratch.resize(n * width);
            let up_out = Parts::new(&mut *ups);
            let to = Target { out: &up_out, stride: width, origin: first, tokens: None };
            compute(pool, act, up, range.clone(), &Epilogue::PLAIN, to);
            let to = Target { out: &out, stride: rows, origin: 0, tokens: None };
            compute(pool, act, gate, range.clone(), &Epilogue::PLAIN, to);
            for (token, ups) in scratch.as_slice().chunks_exact(width.max(1)).enumerate() {
                let at = token * rows + first;
                // SAFETY: these rows belong to this chunk, and chunks do not overlap.
                let gates = unsafe { out.part(at..at + width) };
                ops::vector::glu_in_place_on(pool.isa(), activation, gates, ups);
            }
        });
    });
    Ok(())
}

thread_local! {
    /// Outputs of `up` for the chunk at hand.
    static UP: RefCell<Buf<f32>> = RefCell::default();
    /// Decoded rows, and their products.
    static ROW: RefCell<(Buf<f32>, Buf<f32>)> = RefCell::default();
}

/// About six chunks a worker: enough to even out, few enough to stay cheap.
fn chunk_of(panels: usize, threads: usize) -> usize {
    if threads <= 1 { panels } else { panels.div_ceil(threads * 6) }.max(1).next_multiple_of(2)
}

fn check(pool: &Pool, act: &Act, matrix: &Matrix) -> Result<(), KernelError> {
    expect_len("columns of the activations", matrix.cols(), act.cols())?;
    let ready = match matrix.need(pool.isa()) {
        Need::Floats => act.tokens() == 0 || act.floats(0..1).is_some(),
        need => act.tokens() == act.bulk().tokens() || act.quantised(need).is_some(),
    };
    if ready { Ok(()) } else { Err(KernelError::NotPrepared(matrix.quant().name())) }
}

struct Task<'a> {
    matrix: &'a Matrix,
    epilogue: Epilogue<'a>,
    out: Parts<'a, f32>,
}

impl Task<'_> {
    fn panels(&self, pool: &Pool, act: &Act, panels: Range<usize>) {
        let to = Target { out: &self.out, stride: self.matrix.rows(), origin: 0, tokens: None };
        compute(pool, act, self.matrix, panels, &self.epilogue, to);
    }
}

/// Computes the rows of `panels` for every token.
fn compute(
    pool: &Pool,
    act: &Act,
    matrix: &Matrix,
    panels: Range<usize>,
    epilogue: &Epilogue<'_>,
    to: Target<'_>,
) {
    let isa = pool.isa();
    let need = matrix.need(isa);
    let rows = panels.start * PANEL..(panels.end * PANEL).min(matrix.rows());
    if need == Need::Floats {
        return float_rows(isa, act, matrix, rows, &|row, token, product| {
            put(epilogue, to, row, token, product);
        });
    }
    let (n, to) = match act.split() {
        None => (act.tokens(), to),
        Some((bulk, others)) => {
            let target = Target { tokens: Some(bulk), ..to };
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            crate::panel::x86::compute_bulk(matrix, rows.clone(), act.bulk(), epilogue, target);
            let _ = target;
            (others.len(), Target { tokens: Some(others), ..to })
        }
    };
    let Some(x) = act.quantised(need) else { return };
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if isa >= Isa::Avx2
        && (matrix.is_packed() || (need.is_either() && n > FEW))
        && let Some(kind) = matrix.quant().int_kind()
    {
        return crate::panel::x86::compute(isa, matrix, kind, rows, x, n, epilogue, to);
    }
    dot::rows(isa, matrix, rows, x, n, &|row, token, product| {
        put(epilogue, to, row, token, product);
    });
}

/// Stores a product.
#[inline(always)]
fn put(epilogue: &Epilogue<'_>, to: Target<'_>, row: usize, token: usize, product: f32) {
    let at = to.at(row, token);
    // SAFETY: this row belongs to the chunk at hand, and chunks do not overlap.
    let slot = unsafe { to.out.part(at..at + 1) };
    if let Some(slot) = slot.first_mut() {
        epilogue.apply(product, row, slot);
    }
}

/// Tokens that meet a block of decoded rows at a time.
const FLOAT_TOKENS: usize = 32;

/// Rows of a type without an integer kernel. Floats of any kind are read as they are for few tokens
/// and decoded a block at a time for more, with the same sums.
fn float_rows(
    isa: Isa,
    act: &Act,
    matrix: &Matrix,
    rows: Range<usize>,
    store: &impl Fn(usize, usize, f32),
) {
    let (n, cols, quant) = (act.tokens(), matrix.cols(), matrix.quant());
    let float = matches!(quant, Quant::F32 | Quant::F16 | Quant::BF16);
    let direct = n <= FEW && float && !matrix.is_packed();
    ROW.with_borrow_mut(|(decoded, products)| {
        for first in rows.clone().step_by(PANEL) {
            let count = (rows.end - first).min(PANEL);
            let decoded = decoded.resize(if direct { 0 } else { count * cols });
            for (i, values) in decoded.chunks_exact_mut(cols.max(1)).enumerate() {
                matrix.with_row(first + i, |bytes| codec::decode_blocks(quant, bytes, values));
            }
            let (quant, block) = match matrix.rows_bytes(first..first + count) {
                Some(bytes) if direct => (quant, bytes),
                _ => (Quant::F32, bytes_of(decoded)),
            };
            for token in (0..n).step_by(FLOAT_TOKENS) {
                let tokens = token..(token + FLOAT_TOKENS).min(n);
                let products = products.resize(tokens.len() * count);
                let Some(x) = act.floats(tokens.clone()) else { return };
                dot::float::block(isa, quant, block, x, cols, products);
                for (t, products) in tokens.zip(products.chunks_exact(count)) {
                    for (i, product) in products.iter().enumerate() {
                        store(first + i, t, *product);
                    }
                }
            }
        }
    });
}

/// The bytes of floats.
fn bytes_of(floats: &[f32]) -> &[u8] {
    // SAFETY: every byte of a float is initialised, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) }
}
