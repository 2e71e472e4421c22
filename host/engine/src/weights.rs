//! A model's tensors as the executor wants them: matrices on the mapped file, on a package's map or
//! packed, small vectors decoded, tables of angles made.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use gristmill_core::{Error, Result};
use gristmill_kernels::{Bytes, LayoutId, Matrix, Quant, decode_row, ops::RopeTable};
use gristmill_models::{Gguf, store::Package};

use crate::{
    nonfinite,
    plan::Plan,
    program::{Op, Tensor, TensorId},
    rope::Angles,
};

/// Where tensors' bytes come from.
pub trait Source: Send + Sync {
    /// The bytes of a tensor.
    ///
    /// # Errors
    /// `invalid-request` when there is none of this name.
    fn bytes(&self, name: &str) -> Result<Bytes>;

    /// Part of a tensor's bytes.
    ///
    /// # Errors
    /// As [`Source::bytes`], or the tensor is smaller.
    fn part(&self, name: &str, range: Range<usize>) -> Result<Bytes>;

    /// The bytes of a tensor will not be read soon: they have been packed.
    fn release(&self, _name: &str) {}
}

impl Source for Gguf {
    fn bytes(&self, name: &str) -> Result<Bytes> {
        let size = self.tensor(name).map_or(0, |tensor| tensor.range.len());
        self.part(name, 0..size)
    }

    fn part(&self, name: &str, range: Range<usize>) -> Result<Bytes> {
        let found = self.tensor_bytes(name).ok_or_else(|| {
            Error::invalid(format!("{}: no tensor `{name}`", self.path().display()))
        })?;
        if range.end > found.range.len() {
            return Err(Error::invalid(format!(
                "tensor `{name}`: expected {} bytes, found {}",
                range.end,
                found.range.len()
            )));
        }
        let start = found.range.start;
        Bytes::new(found.owner, start + range.start..start + range.end)
            .map_err(|error| Error::invalid(format!("tensor `{name}`: {error}")))
    }

    fn release(&self, name: &str) {
        if let Some(tensor) = self.tensor(name) {
            Self::release(self, tensor);
        }
    }
}

/// How a tensor is used.
#[derive(Debug)]
enum Held {
    /// By products and row look-ups; of rank three, one matrix per expert.
    Matrices(Vec<Matrix>),
    /// Whole, as numbers.
    Vector(Vec<f32>),
}

/// All tensors of a plan.
#[derive(Debug)]
pub struct Weights {
    held: Vec<Held>,
    tables: Vec<RopeTable>,
    memory: u64,
    /// Whether what is mapped from the file is more than the machine has memory for.
    scarce: bool,
    /// The file whose pages are given back with the weights.
    file: Option<Arc<Gguf>>,
}

impl Drop for Weights {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // They are read from the file again where others still look at it.
            file.tensors().iter().for_each(|tensor| file.release(tensor));
        }
    }
}

impl Weights {
    /// Takes a plan's tensors from a source. With `pack`, matrices are brought into the layout the
    /// kernels like best, on all processors, and the pages of the file given back.
    ///
    /// # Errors
    /// `invalid-request` for bytes that do not fit the tensor; `insufficient-memory`.
    pub fn load(plan: &Plan, source: &dyn Source, pack: bool) -> Result<Self> {
        Self::take(plan, source, pack, None)
    }

    /// Takes a plan's tensors as they lie in a file. When nobody computes with these weights any more,
    /// for they have been packed, the file's pages are given back.
    ///
    /// # Errors
    /// As [`Weights::load`].
    pub(crate) fn mapped(plan: &Plan, file: Arc<Gguf>) -> Result<Self> {
        let mut weights = Self::load(plan, &*file, false)?;
        weights.file = Some(file);
        Ok(weights)
    }

    /// Takes the matrices that a package has from it, and everything else from the source.
    ///
    /// # Errors
    /// As [`Weights::load`]; `invalid-request` when the package holds other matrices than the plan
    /// needs.
    pub fn packaged(plan: &Plan, source: &dyn Source, package: &Package) -> Result<Self> {
        Self::take(plan, source, false, Some(package))
    }

    fn take(
        plan: &Plan,
        source: &dyn Source,
        pack: bool,
        package: Option<&Package>,
    ) -> Result<Self> {
        let tensors = &plan.program.tensors;
        let uses = uses(plan);
        let mut held = Vec::with_capacity(tensors.len());
        for (tensor, usage) in tensors.iter().zip(&uses) {
            held.push(match usage {
                Use::Vector => {
                    let vector = vector(tensor, source)?;
                    nonfinite::vector(tensor, &vector)?;
                    Held::Vector(vector)
                }
                Use::Kernel => {
                    let vector = vector(tensor, source)?;
                    nonfinite::vector(tensor, &vector)?;
                    Held::Vector(turned(&vector, tensor.cols()))
                }
                Use::Rows | Use::Product => {
                    let packed = package.map(|package| packed(tensor, package)).transpose()?;
                    Held::Matrices(match packed.flatten() {
                        Some(packed) => packed,
                        None => matrices(tensor, source)?,
                    })
                }
            });
        }
        if pack {
            pack_all(tensors, &uses, &mut held, source)?;
        }
        let memory = held
            .iter()
            .map(|held| match held {
                Held::Matrices(matrices) => matrices.iter().map(|m| m.memory() as u64).sum(),
                Held::Vector(vector) => vector.len() as u64 * 4,
            })
            .sum();
        let mapped = held.iter().map(|held| match held {
            Held::Matrices(all) => {
                all.iter().filter(|m| !m.is_packed()).map(|m| m.memory() as u64).sum()
            }
            Held::Vector(_) => 0,
        });
        let mapped: u64 = mapped.sum();
        let scarce = crate::memory::available().is_some_and(|available| mapped > available);
        let mut weights = Self { held, tables: Vec::new(), memory, scarce, file: None };
        for rope in &plan.ropes {
            let factors = weights.vector_or(Angles::factors(rope, plan.context))?;
            let angles = Angles::new(rope, factors);
            let frequencies = angles.frequencies.iter().map(|f| *f as f32).collect();
            let table = RopeTable::from_frequencies(frequencies, angles.magnitude as f32);
            weights.tables.push(table);
        }
        Ok(weights)
    }

    /// Bytes of weights, packed or mapped.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether weights may have to be read from the disk again and again, so that it pays to ask for
    /// them early.
    pub(crate) fn scarce(&self) -> bool {
        self.scarce
    }

    /// Angles of a plan's rope.
    pub(crate) fn table(&self, index: usize) -> Result<&RopeTable> {
        self.tables.get(index).ok_or_else(|| Error::internal("no such table of angles"))
    }

    pub(crate) fn matrix(&self, id: TensorId) -> Result<&Matrix> {
        self.experts(id)?.first().ok_or_else(|| Error::internal("an empty tensor"))
    }

    pub(crate) fn experts(&self, id: TensorId) -> Result<&[Matrix]> {
        match self.held.get(id) {
            Some(Held::Matrices(matrices)) => Ok(matrices),
            _ => Err(Error::internal("a vector where a matrix is needed")),
        }
    }

    pub(crate) fn vector(&self, id: TensorId) -> Result<&[f32]> {
        match self.held.get(id) {
            Some(Held::Vector(vector)) => Ok(vector),
            _ => Err(Error::internal("a matrix where a vector is needed")),
        }
    }

    pub(crate) fn vector_or(&self, id: Option<TensorId>) -> Result<Option<&[f32]>> {
        id.map(|id| self.vector(id)).transpose()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Vector,
    /// Whole, rows and columns exchanged: the loop over a convolution wants channels side by side.
    Kernel,
    Rows,
    Product,
}

fn uses(plan: &Plan) -> Vec<Use> {
    let mut uses = vec![Use::Vector; plan.program.tensors.len()];
    let mut set = |id: TensorId, to: Use| {
        if let Some(usage) = uses.get_mut(id)
            && *usage != Use::Product
        {
            *usage = to;
        }
    };
    for step in &plan.program.steps {
        for (id, usage) in matrices_of(&step.op) {
            set(id, usage);
        }
    }
    uses
}

/// The tensors that a step reads as matrices, with what it does to each.
fn matrices_of(op: &Op) -> Vec<(TensorId, Use)> {
    match op {
        Op::Embed { weight, .. } | Op::PositionEmbed { weight } | Op::SegmentEmbed { weight } => {
            vec![(*weight, Use::Rows)]
        }
        Op::Linear { weight, .. } | Op::HeadLinear { weight, .. } => {
            vec![(*weight, Use::Product)]
        }
        Op::Head(head) => vec![(head.weight, Use::Product)],
        Op::Conv(conv) => vec![(conv.weight, Use::Kernel)],
        Op::Moe(moe) => {
            [moe.router, moe.gate, moe.up, moe.down].map(|id| (id, Use::Product)).to_vec()
        }
        _ => Vec::new(),
    }
}

/// The tensors that a step reads as matrices.
pub(crate) fn operands(op: &Op) -> impl Iterator<Item = TensorId> {
    matrices_of(op).into_iter().map(|(id, _)| id)
}

/// The tensors a plan multiplies with: those that are worth packing.
pub(crate) fn products(plan: &Plan) -> impl Iterator<Item = &Tensor> {
    let uses = uses(plan);
    plan.program
        .tensors
        .iter()
        .zip(uses)
        .filter_map(|(tensor, usage)| (usage == Use::Product).then_some(tensor))
}

/// Rows of one matrix of a tensor, and how many matrices it has.
pub(crate) fn stack(tensor: &Tensor) -> (usize, usize) {
    let rows = tensor.shape.get(1).copied().unwrap_or(1);
    (rows, tensor.rows() / rows.max(1))
}

/// A tensor as a package has it; none if it has not.
fn packed(tensor: &Tensor, package: &Package) -> Result<Option<Vec<Matrix>>> {
    let Some(section) = package.section(&tensor.name) else { return Ok(None) };
    let (rows, count) = stack(tensor);
    let shape = [rows, tensor.cols(), count];
    if Quant::from_id(section.quant) != Ok(tensor.quant)
        || [section.rows, section.cols, section.count] != shape
    {
        return Err(wrong(tensor, "the package has another type or shape"));
    }
    let layout = LayoutId::from_u32(section.layout);
    let matrix = |n| {
        let (owner, range) = package.part(section, n).ok_or_else(|| wrong(tensor, "not there"))?;
        let bytes = Bytes::new(owner, range).map_err(|e| wrong(tensor, e))?;
        Matrix::from_packed(tensor.quant, rows, tensor.cols(), layout, bytes)
            .map_err(|e| wrong(tensor, e))
    };
    (0..count).map(matrix).collect::<Result<_>>().map(Some)
}

fn wrong(tensor: &Tensor, error: impl std::fmt::Display) -> Error {
    Error::invalid(format!("tensor `{}`: {error}", tensor.name))
}

fn matrices(tensor: &Tensor, source: &dyn Source) -> Result<Vec<Matrix>> {
    let bytes = source.bytes(&tensor.name)?;
    let cols = tensor.cols();
    let (rows, count) = stack(tensor);
    let size = tensor.quant.row_bytes(cols).map_err(|e| wrong(tensor, e))? * rows;
    if bytes.len() != size * count {
        return Err(wrong(
            tensor,
            format!("expected {} bytes, found {}", size * count, bytes.len()),
        ));
    }
    (0..count)
        .map(|n| {
            let part = source.part(&tensor.name, n * size..(n + 1) * size)?;
            Matrix::new(tensor.quant, rows, cols, part).map_err(|e| wrong(tensor, e))
        })
        .collect()
}

fn turned(rows: &[f32], cols: usize) -> Vec<f32> {
    let column = |n: usize| rows.iter().skip(n).step_by(cols.max(1)).copied();
    (0..cols).flat_map(column).collect()
}

fn vector(tensor: &Tensor, source: &dyn Source) -> Result<Vec<f32>> {
    let bytes = source.bytes(&tensor.name)?;
    let (cols, size) =
        (tensor.cols(), tensor.quant.row_bytes(tensor.cols()).map_err(|e| wrong(tensor, e))?);
    if bytes.len() != size * tensor.rows() {
        let expected = format!("expected {} bytes, found {}", size * tensor.rows(), bytes.len());
        return Err(wrong(tensor, expected));
    }
    let mut out = vec![0.0; cols * tensor.rows()];
    for (row, bytes) in out.chunks_exact_mut(cols).zip(bytes.as_slice().chunks_exact(size)) {
        decode_row(tensor.quant, bytes, row).map_err(|e| wrong(tensor, e))?;
    }
    Ok(out)
}

/// Packs every matrix that is multiplied. Threads take tensors as they come, the next one when
/// done; each packs as it would alone, so the result does not depend on how many there are.
fn pack_all(
    tensors: &[Tensor],
    uses: &[Use],
    held: &mut [Held],
    source: &dyn Source,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let slots: Vec<Mutex<&mut Held>> = held.iter_mut().map(Mutex::new).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(tensor), Some(usage), Some(slot)) =
                (tensors.get(index), uses.get(index), slots.get(index))
            else {
                return;
            };
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Use::Product, Held::Matrices(matrices)) = (usage, &mut **slot) {
                for matrix in matrices.iter_mut() {
                    match matrix.pack() {
                        Ok(packed) => *matrix = packed,
                        Err(error) => {
                            let error = wrong(tensor, error);
                            failure
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(error);
                            return;
                        }
                    }
                }
                source.release(&tensor.name);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    drop(slots);
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
