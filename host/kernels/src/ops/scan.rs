//! Scans of the logits: the best one, those above a threshold, the best k, the best of every block.

use super::multiversion;

multiversion! {
    /// Index of the largest value, the first of equals. NaN is passed over; `None` if nothing is
    /// left to choose from.
    pub fn argmax / argmax_on = argmax_body(x: &[f32]) -> Option<usize>
}

#[inline(always)]
fn argmax_body<const FMA: bool>(x: &[f32]) -> Option<usize> {
    // First the maximum, as vectors; then where it is. The second pass stops at the first hit.
    let most = maximum(x)?;
    let (wide, rest) = x.as_chunks::<64>();
    for (i, chunk) in wide.iter().enumerate() {
        if chunk.iter().fold(false, |hit, &v| hit | (v == most)) {
            return chunk.iter().position(|&v| v == most).map(|j| i * 64 + j);
        }
    }
    rest.iter().position(|&v| v == most).map(|j| wide.len() * 64 + j)
}

#[inline(always)]
fn maximum(x: &[f32]) -> Option<f32> {
    let (wide, rest) = x.as_chunks::<64>();
    let mut lanes = [f32::NEG_INFINITY; 64];
    for chunk in wide {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = if v > *lane { v } else { *lane };
        }
    }
    let most = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
    // Minus infinity may be a value, or there may be none.
    (most > f32::NEG_INFINITY || x.contains(&f32::NEG_INFINITY)).then_some(most)
}

multiversion! {
    /// Appends index and value of everything above (not at) `threshold`, in order of index.
    pub fn above / above_on = above_body(x: &[f32], threshold: f32, found: &mut Vec<(u32, f32)>)
}

#[inline(always)]
fn above_body<const FMA: bool>(x: &[f32], threshold: f32, found: &mut Vec<(u32, f32)>) {
    scan(
        x,
        &mut |i, v, hits: &mut Vec<(u32, f32)>| {
            hits.push((i, v));
            None
        },
        threshold,
        found,
    );
}

/// Calls `take` for every value above the threshold, which `take` may raise.
#[inline(always)]
fn scan(
    x: &[f32],
    take: &mut impl FnMut(u32, f32, &mut Vec<(u32, f32)>) -> Option<f32>,
    mut threshold: f32,
    found: &mut Vec<(u32, f32)>,
) {
    for (i, chunk) in x.chunks(32).enumerate() {
        // Most chunks have nothing: one vector comparison decides.
        if !chunk.iter().fold(false, |hit, &v| hit | (v > threshold)) {
            continue;
        }
        for (j, &v) in chunk.iter().enumerate() {
            if v > threshold
                && let Some(higher) = take((i * 32 + j) as u32, v, found)
            {
                threshold = higher;
            }
        }
    }
}

multiversion! {
    /// The `k` largest values with their indices, largest first, equals by index. NaN and minus
    /// infinity are passed over, so there may be fewer. `found` is cleared first.
    pub fn top_k / top_k_on = top_k_body(x: &[f32], k: usize, found: &mut Vec<(u32, f32)>)
}

fn better(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// Keeps the `k` largest values with their indices, largest first, equals by index.
pub fn keep_best(found: &mut Vec<(u32, f32)>, k: usize) {
    if k == 0 {
        found.clear();
    }
    prune(found, k);
    found.sort_unstable_by(better);
}

/// Keeps the best `k`; their worst is the new threshold.
fn prune(found: &mut Vec<(u32, f32)>, k: usize) -> Option<f32> {
    if found.len() <= k {
        return None;
    }
    found.select_nth_unstable_by(k - 1, better);
    found.truncate(k);
    found.last().map(|worst| worst.1)
}

#[inline(always)]
fn top_k_body<const FMA: bool>(x: &[f32], k: usize, found: &mut Vec<(u32, f32)>) {
    found.clear();
    if k == 0 {
        return;
    }
    let room = (4 * k).max(512);
    scan(
        x,
        &mut |i, v, hits: &mut Vec<(u32, f32)>| {
            hits.push((i, v));
            if hits.len() >= room { prune(hits, k) } else { None }
        },
        f32::NEG_INFINITY,
        found,
    );
    keep_best(found, k);
}

multiversion! {
    /// The largest of every `block` values, the last of what is left; NaN where one of them is no
    /// finite number.
    pub fn peaks / peaks_on = peaks_body(x: &[f32], block: usize, out: &mut [f32])
}

#[inline(always)]
fn peaks_body<const FMA: bool>(x: &[f32], block: usize, out: &mut [f32]) {
    for (x, out) in x.chunks(block.max(1)).zip(out) {
        let (mut most, mut poison) = ([f32::NEG_INFINITY; 64], [0.0_f32; 64]);
        let (wide, rest) = x.as_chunks::<64>();
        for x in wide.iter().map(<[f32; 64]>::as_slice).chain([rest]) {
            for ((most, poison), &v) in most.iter_mut().zip(&mut poison).zip(x) {
                *most = if v > *most { v } else { *most };
                // Zero for a finite number, NaN for any other, and NaN stays.
                *poison += v * 0.0;
            }
        }
        *out = if poison.iter().all(|p| *p == 0.0) {
            most.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m })
        } else {
            f32::NAN
        };
    }
}
