//! A model's package: opened when it is there, made in the background when it is not.
//!
//! A model answers at once from its file's own bytes, which the kernels read at about half the speed
//! of their own layout. So threads that are none of the pool's bring the matrices into that
//! layout with ordinary priority, let the store keep them, and hand the model its new weights
//! between two passes; contexts stay. With the lowest priority it would never end beside an answer:
//! the pool's threads leave a processor only when they have nothing to do. No bit of an answer depends
//! on where its weights are. When no package can be made (a full disk, a store that
//! cannot be written to), the reason is logged and kept for `explain`, and the matrices are packed
//! into this process's own memory instead.
//!
//! Every weight is looked at on the way: one that is no finite number makes the model answer with
//! an error that names its tensor, and no package is made.

use std::{
    ops::ControlFlow,
    sync::{Arc, Weak},
    thread,
    time::Instant,
};

use gristmill_core::{Error, Result};
use gristmill_kernels::{
    LayoutId, Matrix,
    isa::{self, Isa},
};
use gristmill_models::{
    Gguf,
    store::{Package, PackageWriter, Progress, Store, Update},
};
use serde_json::{Value, json};

use crate::{
    core::Core,
    plan::Plan,
    program::Tensor,
    weights::{Source as _, Weights, products, stack},
};

/// The kind of kernels this process packs for; part of a package's name. Tiles (AMX) are made of the
/// packages that AVX-512 reads.
#[must_use]
pub fn kind() -> String {
    format!("{}-{}", std::env::consts::ARCH, isa::current().min(Isa::Avx512))
}

/// Where a model's matrices are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In the model's file.
    File,
    /// In its package.
    Package(Arc<Package>),
    /// Packed, in this process.
    Memory,
}

/// The same, with the reason why it is no package.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) place: Place,
    pub(crate) reason: Option<String>,
}

impl Placement {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, reason: None }
    }

    pub(crate) fn because(place: Place, reason: impl Into<String>) -> Self {
        Self { place, reason: Some(reason.into()) }
    }

    /// `file`, `package` or `memory`.
    pub(crate) fn word(&self) -> &'static str {
        match self.place {
            Place::File => "file",
            Place::Package(_) => "package",
            Place::Memory => "memory",
        }
    }

    pub(crate) fn json(&self) -> Value {
        let package = match &self.place {
            Place::Package(package) => Some(package),
            _ => None,
        };
        json!({
            "from": self.word(),
            "package": package.map(|package| package.path().display().to_string()),
            "bytes": package.map(|package| package.size()),
            "huge_page_bytes": package.and_then(|package| package.huge()),
            "reason": self.reason,
        })
    }
}

/// Opens a model's package and takes the weights from it. None if there is none, or if it must not
/// be used; then the log says why.
pub(crate) fn open(
    store: &Store,
    digest: &str,
    plan: &Plan,
    file: &Gguf,
) -> Option<(Weights, Placement)> {
    let found = store.package(digest, &kind()).map_err(Error::from).and_then(|package| {
        let Some(package) = package else { return Ok(None) };
        let weights = Weights::packaged(plan, file, &package)?;
        Ok(Some((weights, Placement::new(Place::Package(Arc::new(package))))))
    });
    found.unwrap_or_else(|error| {
        tracing::warn!(model = digest, %error, "a package is not used");
        None
    })
}

/// Makes the package of a model, or finds that another process just did.
///
/// # Errors
/// What the store says; `non-finite` naming a tensor.
pub fn make(
    store: &Store,
    digest: &str,
    plan: &Plan,
    file: &Gguf,
    progress: &mut dyn Progress,
) -> Result<Option<Package>> {
    let estimate = estimate(plan);
    store.make_package(digest, &kind(), estimate, progress, |writer| fill(plan, file, writer))
}

/// The layout a tensor is packed into here; none if its rows are best as they are.
fn layout(tensor: &Tensor) -> Option<LayoutId> {
    (isa::current() > Isa::Scalar).then(|| LayoutId::of(tensor.quant)).flatten()
}

/// Bytes the packed matrices take; 0 when there is nothing to pack.
fn estimate(plan: &Plan) -> u64 {
    let bytes = products(plan).filter_map(|tensor| {
        let (rows, count) = stack(tensor);
        let one = layout(tensor)?.bytes(rows, tensor.cols()).ok()?;
        Some(one as u64 * count as u64)
    });
    bytes.sum()
}

/// Packed bytes that a thread makes at once, in whole panels: about what the store writes at once.
const PIECE: usize = 2 << 20;

fn fill(plan: &Plan, file: &Gguf, writer: &mut PackageWriter<'_>) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for tensor in products(plan) {
        let Some(layout) = layout(tensor) else { continue };
        let wrong = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("tensor `{}`: {error}", tensor.name))
        };
        let ((rows, count), cols) = (stack(tensor), tensor.cols());
        let bytes = |rows| layout.bytes(rows, cols).map_err(|error| wrong(&error));
        let numbers = [tensor.quant.id(), layout.to_u32()];
        writer.tensor(&tensor.name, numbers, [rows, cols, count], bytes(rows)?)?;
        let step = (PIECE / bytes(LayoutId::ROWS)?.max(1)).max(1) * LayoutId::ROWS;
        let row = tensor.quant.row_bytes(cols).map_err(|error| wrong(&error))?;
        let pack = |first: usize, last: usize| -> Result<Matrix> {
            let bytes = file.part(&tensor.name, first * row..last * row)?;
            let raw = Matrix::new(tensor.quant, last - first, cols, bytes);
            let raw = raw.map_err(|error| wrong(&error))?;
            crate::nonfinite::matrix(tensor, first, &raw)?;
            raw.pack().map_err(|error| wrong(&error))
        };
        // Panels do not span matrices, nor do pieces.
        let pieces: Vec<(usize, usize)> = (0..count)
            .flat_map(|n| (0..rows).step_by(step).map(move |at| (n, at)))
            .map(|(n, at)| (n * rows + at, n * rows + rows.min(at + step)))
            .collect();
        for group in pieces.chunks(threads) {
            let packed: Vec<Result<Matrix>> = thread::scope(|scope| {
                let pack = &pack;
                let running: Vec<_> = group
                    .iter()
                    .map(|&(first, last)| scope.spawn(move || pack(first, last)))
                    .collect();
                let ended = || Error::internal("a thread that packs ended");
                running.into_iter().map(|it| it.join().unwrap_or_else(|_| Err(ended()))).collect()
            });
            for matrix in packed {
                let matrix = matrix?;
                let bytes = matrix.packed_bytes().ok_or_else(|| wrong(&"it was not packed"))?;
                writer.part(bytes)?;
            }
        }
    }
    Ok(())
}

/// Stops when the model is gone.
struct While<'a>(&'a Weak<Core>);

impl Progress for While<'_> {
    fn update(&mut self, _: &Update<'_>) -> ControlFlow<()> {
        if self.0.strong_count() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Packs a model that runs from its file, on threads of its own.
pub(crate) fn begin(core: &Arc<Core>, store: Arc<Store>) {
    let stay = |reason: &str| core.note(Placement::because(Place::File, reason));
    if estimate(&core.plan) == 0 {
        return stay("no tensor has a packed layout on this machine");
    }
    if core.weights().is_ok_and(|weights| weights.scarce()) {
        return stay("the model is larger than the memory that is free");
    }
    let (plan, file) = (Arc::clone(&core.plan), Arc::clone(&core.file));
    let (digest, id) = (core.located.digest.clone(), core.located.id.clone());
    // Not held: a model that is let go of need not be packed.
    let core = Arc::downgrade(core);
    let work = move || {
        let begun = Instant::now();
        let made = make(&store, &digest, &plan, &file, &mut While(&core)).and_then(|package| {
            let package = package.ok_or_else(|| Error::internal("an empty package"))?;
            Ok((Weights::packaged(&plan, &*file, &package)?, package))
        });
        let Some(core) = core.upgrade() else { return };
        match made {
            Ok((weights, package)) => {
                tracing::info!(
                    model = id,
                    bytes = package.size(),
                    ms = begun.elapsed().as_millis(),
                    "the model runs from its package"
                );
                let place = Place::Package(Arc::new(package));
                core.replace(Ok(weights), Placement::new(place));
            }
            Err(error) if error.code.as_str() == crate::nonfinite::CODE => {
                tracing::error!(model = id, %error, "the model is damaged");
                let reason = error.message.clone();
                core.replace(Err(error), Placement::because(Place::File, reason));
            }
            Err(error) => {
                tracing::warn!(model = id, %error, "no package: packing into memory instead");
                let reason = format!("no package could be made: {}", error.message);
                match Weights::load(&plan, &*file, true) {
                    Ok(weights) => {
                        core.replace(Ok(weights), Placement::because(Place::Memory, reason));
                    }
                    Err(_) => core.note(Placement::because(Place::File, reason)),
                }
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("packing".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread to pack on: the model runs from its file");
    }
}

/// Makes the package of a stored model ahead of its first use.
///
/// # Errors
/// What opening, resolving or checking the model says, and as [`make`].
pub fn ahead(
    store: &Store,
    name: &str,
    families: &dyn gristmill_core::program::Families,
    progress: &mut dyn Progress,
) -> Result<Option<Package>> {
    let located = store.locate(name)?;
    let path = located.paths.first().ok_or_else(|| Error::not_found("a model without files"))?;
    let file = Gguf::open(path)?;
    let metadata = file.metadata();
    let resolved = families.resolve(&metadata)?;
    let checked = crate::program::check(&resolved.program, &metadata).map_err(Error::from)?;
    make(store, &located.digest, &Plan::new(Arc::new(checked)), &file, progress)
}
