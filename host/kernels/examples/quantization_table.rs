//! Writes the table of tensor types of `docs/quantization.md`: `quantization_table [FILE]`.
//!
//! The rates are measured on this machine, with one thread, over weights larger than any cache:
//! one token's matrix product (decoding). The rest of the table comes from the registry, and a
//! test holds the page to it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measuring tool may fail loudly"
)]

use std::time::Instant;

use gristmill_kernels::{
    Act, Bytes, Isa, Job, Matrix, Paths, Pool, Quant, isa, linear, measure, table,
};

/// Bytes of weights that are read per pass.
const WORKING_SET: usize = 128 << 20;

fn noise(n: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Bytes of weights per second with one token.
fn rate(quant: Quant, isa: Isa) -> f64 {
    let (rows, cols) = (1024, 2048);
    let row = quant.row_bytes(cols).unwrap();
    // Any bytes do: time does not depend on what they say, as long as it is no denormal.
    let bytes: Vec<u8> = noise(row * rows).iter().map(|x| 0x30 | (x * 15.0) as i8 as u8).collect();
    let raw = Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).unwrap();
    let matrices: Vec<Matrix> = (0..WORKING_SET / (row * rows) + 1)
        .map(|_| match raw.pack_for(isa).unwrap() {
            packed if packed.is_packed() => packed,
            // Bytes of its own, so that memory is what is measured.
            _ => {
                let bytes = (0..rows).flat_map(|_| vec![0x31; row]).collect();
                Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).unwrap()
            }
        })
        .collect();
    let bytes: usize = matrices.iter().map(Matrix::memory).sum();
    let pool = Pool::with_isa(1, true, isa);
    pool.pin_caller();
    let x = noise(cols);
    let mut act = Act::default();
    act.prepare(&pool, &x, 1, cols, &[&raw, &matrices[0]]).unwrap();
    let mut out = vec![0.0; rows];
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let started = Instant::now();
            for matrix in &matrices {
                let job = Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false };
                linear(&pool, &act, &mut [job]).unwrap();
            }
            started.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    bytes as f64 / times[times.len() / 2]
}

fn main() {
    let bandwidth = measure::bandwidth(1).unwrap();
    let mut page = table::head(&format!(
        "Measured with one thread on a machine whose memory gives one thread {:.1} GB/s \
         ({} offered).",
        bandwidth / 1e9,
        isa::offered()
    ));
    for &quant in Quant::ALL {
        let rates: Vec<String> = [Isa::Avx512, Isa::Avx2]
            .into_iter()
            .map(|isa| {
                if isa > isa::offered() || quant.paths() == Paths::Decoded {
                    return "–".to_owned();
                }
                format!("{:.1}", rate(quant, isa) / 1e9)
            })
            .collect();
        page.push_str(&format!("{} {} |\n", table::row(quant), rates.join(" | ")));
    }
    match std::env::args().nth(1) {
        Some(file) => std::fs::write(file, page).unwrap(),
        None => print!("{page}"),
    }
}
