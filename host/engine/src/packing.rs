//! A model's package: opened when it is there, made in the background when it is not.
//!
//! A model answers at once from its file's own bytes. A thread of the lowest priority, which is
//! none of the pool's, brings the matrices into the kernels' layout, lets the store keep them, and
//! hands the model its new weights between two passes; contexts stay. Answers before and after
//! differ by the rounding of sums only. When no package can be made (a full disk, a store that
//! cannot be written to), the reason is logged and kept for `explain`, and the matrices are packed
//! into this process's own memory instead.
//!
//! Every weight is looked at on the way: one that is no finite number makes the model answer with
//! an error that names its tensor, and no package is made.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Weak},
    thread,
    time::Instant,
};

use gristmill_core::{Error, Result};
use gristmill_kernels::{LayoutId, isa};
use gristmill_models::{
    Gguf,
    store::{Package, PackageWriter, Progress, Store, Update},
};
use serde_json::{Value, json};

use crate::{
    core::Core,
    plan::Plan,
    weights::{Weights, matrices, products, stack},
};

/// The kind of kernels this process packs for; part of a package's name.
#[must_use]
pub fn kind() -> String {
    format!("{}-{}", std::env::consts::ARCH, isa::current())
}

/// Where a model's matrices are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    /// `file`, `package` or `memory`.
    pub(crate) from: &'static str,
    /// The package's file.
    pub(crate) path: Option<PathBuf>,
    /// The package's bytes.
    pub(crate) bytes: u64,
    /// Bytes of it mapped by huge pages.
    pub(crate) huge: Option<u64>,
    /// Why it is not a package.
    pub(crate) reason: Option<String>,
}

impl Placement {
    pub(crate) fn file() -> Self {
        Self { from: "file", ..Self::default() }
    }

    pub(crate) fn memory(reason: Option<String>) -> Self {
        Self { from: "memory", reason, ..Self::default() }
    }

    pub(crate) fn package(package: &Package) -> Self {
        Self {
            from: "package",
            path: Some(package.path().to_owned()),
            bytes: package.size(),
            huge: package.huge(),
            reason: None,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "from": self.from,
            "package": self.path.as_ref().map(|path| path.display().to_string()),
            "bytes": self.bytes,
            "huge_page_bytes": self.huge,
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
        Ok(Some((weights, Placement::package(&package))))
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

/// Bytes the packed matrices take.
fn estimate(plan: &Plan) -> u64 {
    let bytes = products(plan).filter_map(|tensor| {
        let (rows, count) = stack(tensor);
        let one = LayoutId::of(tensor.quant)?.bytes(rows, tensor.cols()).ok()?;
        Some(one as u64 * count as u64)
    });
    bytes.sum()
}

fn fill(plan: &Plan, file: &Gguf, writer: &mut PackageWriter<'_>) -> Result<()> {
    for tensor in products(plan) {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("tensor `{}`: {error}", tensor.name))
        };
        let raw = matrices(tensor, file)?;
        let (rows, count) = stack(tensor);
        for (n, matrix) in raw.iter().enumerate() {
            crate::nonfinite::matrix(tensor, n, matrix)?;
            let packed = matrix.pack().map_err(|error| wrong(&error))?;
            let (Some(layout), Some(bytes)) = (packed.packed_layout(), packed.packed_bytes())
            else {
                continue;
            };
            if n == 0 {
                let numbers = [tensor.quant.id(), layout.to_u32()];
                let shape = [rows, tensor.cols(), count];
                writer.tensor(&tensor.name, numbers, shape, bytes.len())?;
            }
            writer.part(bytes)?;
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

/// Packs a model that runs from its file, on a thread of its own.
pub(crate) fn begin(core: &Arc<Core>, store: Arc<Store>) {
    let (plan, file) = (Arc::clone(&core.plan), Arc::clone(&core.file));
    let (digest, id) = (core.located.digest.clone(), core.located.id.clone());
    // Not held: a model that is let go of need not be packed.
    let core = Arc::downgrade(core);
    let work = move || {
        yield_to_answers();
        let begun = Instant::now();
        let made = make(&store, &digest, &plan, &file, &mut While(&core)).and_then(|package| {
            let Some(package) = package else { return Ok(None) };
            let weights = Weights::packaged(&plan, &*file, &package)?;
            Ok(Some((weights, Placement::package(&package))))
        });
        let Some(core) = core.upgrade() else { return };
        match made {
            Ok(Some((weights, placement))) => {
                tracing::info!(
                    model = id,
                    bytes = placement.bytes,
                    huge = placement.huge,
                    ms = begun.elapsed().as_millis(),
                    "the model runs from its package"
                );
                core.replace(Ok(weights), placement);
            }
            Ok(None) => core.note(Placement {
                reason: Some("no tensor has a packed layout on this machine".to_owned()),
                ..Placement::file()
            }),
            Err(error) if error.code.as_str() == crate::nonfinite::CODE => {
                tracing::error!(model = id, %error, "the model is damaged");
                let reason = Some(error.message.clone());
                core.replace(Err(error), Placement { reason, ..Placement::file() });
            }
            Err(error) => {
                tracing::warn!(model = id, %error, "no package: packing into memory instead");
                let reason = format!("no package could be made: {}", error.message);
                match Weights::load(&plan, &*file, true) {
                    Ok(weights) => core.replace(Ok(weights), Placement::memory(Some(reason))),
                    Err(_) => core.note(Placement { reason: Some(reason), ..Placement::file() }),
                }
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("packing".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread to pack on: the model runs from its file");
    }
}

/// The lowest priority, for this thread and those it starts.
fn yield_to_answers() {
    #[cfg(target_os = "linux")]
    // On Linux a priority belongs to a thread. Without it packing is only less polite.
    let _ = rustix::process::setpriority_process(None, 19);
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
