//! The `kernels` import: quantised matrices that stay in the host, multiplied by its kernels.
//!
//! What a guest keeps here counts against the same number of bytes as its own memory, and a result
//! is never larger than one call may carry.

use std::sync::Arc;

use gristmill_core::Error;
use gristmill_kernels::{Act, Bytes, Job, KernelError, Pool, Quant, encode_row, linear};
use wasmtime::{Result, component::Resource};

use super::{Answer, Model, refuse};
use crate::{
    contract::v0_1::bindings::gristmill::contract::kernels, fault::Fault, load::shown,
    plugin::Guest,
};

/// A quantised matrix, and the bytes it costs.
pub struct Matrix {
    matrix: gristmill_kernels::Matrix,
    held: usize,
}

impl Guest {
    /// `n` products, `n × cols` numbers in, `n × rows` out.
    async fn multiply(
        &mut self,
        matrix: &Resource<Matrix>,
        x: Vec<f32>,
        n: usize,
    ) -> Answer<Vec<f32>> {
        let Some(pool) = self.plugin.services.pool.clone() else {
            return refuse(no_kernels());
        };
        let matrix = self.table.get(matrix)?.matrix.clone();
        if n.checked_mul(matrix.cols()) != Some(x.len()) {
            return refuse(Error::invalid(format!(
                "expected {n} × {} numbers, found {}",
                matrix.cols(),
                x.len()
            )));
        }
        let most = self.plugin.grant.limits.host_call_bytes as usize / size_of::<f32>();
        if n.saturating_mul(matrix.rows()) > most {
            return refuse(Error::invalid(format!(
                "the result would have {n} × {} numbers; one call returns at most {most}",
                matrix.rows()
            )));
        }
        match computed(move || product(&pool, &matrix, &x, n)).await? {
            Ok(y) => Ok(Ok(y)),
            Err(error) => refuse(error),
        }
    }
}

impl kernels::Host for Guest {}

impl kernels::HostMatrix for Guest {
    async fn from_tensor(
        &mut self,
        model: Resource<Model>,
        _name: String,
    ) -> Answer<Resource<Matrix>> {
        self.table.get(&model)?;
        refuse(Error::unsupported(
            "this host does not share a model's tensors with plugins; use from-f32",
        ))
    }

    async fn from_f32(
        &mut self,
        rows: u32,
        cols: u32,
        data: Vec<f32>,
        quantization: String,
    ) -> Answer<Resource<Matrix>> {
        if self.plugin.services.pool.is_none() {
            return refuse(no_kernels());
        }
        let (rows, cols) = (rows as usize, cols as usize);
        if rows == 0 || cols == 0 || rows.checked_mul(cols) != Some(data.len()) {
            return refuse(Error::invalid(format!(
                "expected {rows} × {cols} numbers, more than none, found {}",
                data.len()
            )));
        }
        let Some(quant) = Quant::from_name(&quantization) else {
            return refuse(Error::unsupported(format!(
                "no quantization {:?}; names are GGUF's, as Q4_K or F16",
                shown(&quantization)
            )));
        };
        let matrix = match computed(move || quantised(quant, rows, cols, &data)).await? {
            Ok(matrix) => matrix,
            Err(error) => return refuse(error),
        };
        let granted = self.plugin.grant.limits.memory_bytes();
        let wanted = self.held.saturating_add(matrix.memory());
        if wanted > granted {
            return Err(Fault::MemoryLimit { wanted, granted }.into());
        }
        let held = matrix.memory();
        let handle = self.table.push(Matrix { matrix, held })?;
        self.held = wanted;
        Ok(Ok(handle))
    }

    async fn shape(&mut self, matrix: Resource<Matrix>) -> Result<(u32, u32)> {
        let matrix = &self.table.get(&matrix)?.matrix;
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok((narrow(matrix.rows()), narrow(matrix.cols())))
    }

    async fn quantization(&mut self, matrix: Resource<Matrix>) -> Result<String> {
        Ok(self.table.get(&matrix)?.matrix.quant().name().to_owned())
    }

    async fn gemv(&mut self, matrix: Resource<Matrix>, x: Vec<f32>) -> Answer<Vec<f32>> {
        self.multiply(&matrix, x, 1).await
    }

    async fn gemm(&mut self, matrix: Resource<Matrix>, x: Vec<f32>, n: u32) -> Answer<Vec<f32>> {
        if n == 0 {
            return refuse(Error::invalid("gemm: expected at least one vector"));
        }
        self.multiply(&matrix, x, n as usize).await
    }

    async fn row(&mut self, matrix: Resource<Matrix>, index: u32) -> Answer<Vec<f32>> {
        let matrix = &self.table.get(&matrix)?.matrix;
        let index = index as usize;
        if index >= matrix.rows() {
            return refuse(Error::invalid(format!(
                "no row {index}; the matrix has {}",
                matrix.rows()
            )));
        }
        let mut row = vec![0.0; matrix.cols()];
        match matrix.row_f32(index, &mut row) {
            Ok(()) => Ok(Ok(row)),
            Err(error) => refuse(failed(&error)),
        }
    }

    async fn drop(&mut self, matrix: Resource<Matrix>) -> Result<()> {
        let matrix = self.table.delete(matrix)?;
        self.held = self.held.saturating_sub(matrix.held);
        Ok(())
    }
}

fn no_kernels() -> Error {
    Error::unsupported("this host offers no kernels to plugins")
}

fn failed(error: &KernelError) -> Error {
    Error::unsupported(error.to_string())
}

/// Runs on a thread for computing; the guest's fiber waits without holding an async worker.
async fn computed<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, Error> + Send + 'static,
) -> Result<std::result::Result<T, Error>> {
    Ok(tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Error::internal("a kernel panicked"))))
}

fn quantised(
    quant: Quant,
    rows: usize,
    cols: usize,
    data: &[f32],
) -> std::result::Result<gristmill_kernels::Matrix, Error> {
    let bytes = quant.row_bytes(cols).map_err(|error| failed(&error))?;
    let mut packed = vec![0; bytes.saturating_mul(rows)];
    for (row, into) in data.chunks_exact(cols).zip(packed.chunks_exact_mut(bytes)) {
        encode_row(quant, row, into).map_err(|error| failed(&error))?;
    }
    gristmill_kernels::Matrix::new(quant, rows, cols, Bytes::from_vec(packed))
        .and_then(|matrix| matrix.pack())
        .map_err(|error| failed(&error))
}

fn product(
    pool: &Arc<Pool>,
    matrix: &gristmill_kernels::Matrix,
    x: &[f32],
    n: usize,
) -> std::result::Result<Vec<f32>, Error> {
    let mut out = vec![0.0; n.saturating_mul(matrix.rows())];
    let mut act = Act::default();
    act.prepare(pool, x, n, matrix.cols(), &[matrix]).map_err(|error| failed(&error))?;
    let job = Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false };
    linear(pool, &act, &mut [job]).map_err(|error| failed(&error))?;
    Ok(out)
}
