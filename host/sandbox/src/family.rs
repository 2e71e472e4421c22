//! Model families: pure plugins that turn a model file's metadata into a program and a dialect.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use gristmill_core::{
    Error, Result,
    program::{Dialect, Families, Metadata, Program, Resolved},
};
use gristmill_policies::Grant;
use sha2::{Digest, Sha256};

use crate::{
    plugin::{Memo, Plugin},
    sandbox::apart,
};

/// The `model-family` world, whichever contract version; one store answers all three questions.
#[async_trait]
pub(crate) trait FamilyWorld: Send + Sync {
    /// Name, program and dialect; `None`: not mine.
    async fn resolve(&self, metadata: &Metadata) -> Result<Option<(String, Program, Dialect)>>;
}

/// A loaded model family. Its answers are remembered: the same metadata is asked once.
pub struct FamilyPlugin {
    plugin: Arc<Plugin>,
    world: Box<dyn FamilyWorld>,
    memo: Memo<Option<Resolved>>,
}

impl fmt::Debug for FamilyPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyPlugin")
            .field("name", &self.plugin.name)
            .field("digest", &self.plugin.digest)
            .finish_non_exhaustive()
    }
}

impl FamilyPlugin {
    pub(crate) fn new(plugin: Arc<Plugin>, world: Box<dyn FamilyWorld>) -> Self {
        Self { plugin, world, memo: Memo::new() }
    }

    /// The plugin's name, as pinned.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plugin.name
    }

    /// `sha256:…` of the component.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.plugin.digest
    }

    /// The grant it was loaded with.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.plugin.grant
    }

    /// What this family makes of a model; `None`: not its own. Runs Wasm unless the same metadata
    /// was asked before, on a thread of its own.
    ///
    /// # Errors
    /// The family's own error; `plugin-fault`; `busy`.
    pub fn resolve(&self, metadata: &Metadata) -> Result<Option<Resolved>> {
        let key = hash(metadata);
        if let Some(known) = self.memo.get(&key) {
            return Ok(known);
        }
        // Nothing is locked while the guest runs: two callers at once may both ask it, and both are
        // told the same.
        let answer = apart(self.world.resolve(metadata))?.map(|(family, program, dialect)| {
            Resolved { family, digest: self.plugin.digest.clone(), program, dialect }
        });
        self.memo.put(key, answer.clone());
        Ok(answer)
    }
}

/// The installed families, in the order in which they are asked. One can take the place of another while
/// they are asked: who asks already ends with those it began with.
#[derive(Debug, Default)]
pub struct FamilySet {
    families: RwLock<Arc<[Arc<FamilyPlugin>]>>,
}

impl FamilySet {
    /// These families, asked in this order.
    #[must_use]
    pub fn new(families: Vec<FamilyPlugin>) -> Self {
        Self { families: RwLock::new(families.into_iter().map(Arc::new).collect()) }
    }

    /// The families, in order, as they are now.
    #[must_use]
    pub fn families(&self) -> Arc<[Arc<FamilyPlugin>]> {
        Arc::clone(&self.families.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a family in the place of the one of its name, if there is one.
    pub fn replace(&self, family: FamilyPlugin) {
        let mut families = self.families.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = families.to_vec();
        if let Some(place) = next.iter_mut().find(|one| one.name() == family.name()) {
            *place = Arc::new(family);
            *families = next.into();
        }
    }
}

impl Families for FamilySet {
    /// A family that fails does not stand in the way of those behind it: where one of them knows the
    /// model, its answer stands (and names it), otherwise the first failure is returned.
    fn resolve(&self, metadata: &Metadata) -> Result<Resolved> {
        let mut failure = None;
        // Nothing is locked while a guest runs.
        let families = self.families();
        for family in families.iter() {
            match family.resolve(metadata) {
                Ok(Some(resolved)) => return Ok(resolved),
                Ok(None) => {}
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| {
            let names: Vec<_> = families.iter().map(|family| family.name()).collect();
            let architecture: String = metadata.architecture.chars().take(64).collect();
            Error::unsupported(format!(
                "no installed family knows the architecture {architecture:?}; installed: {}",
                names.join(", ")
            ))
            .with("architecture", architecture)
        }))
    }
}

/// A hash of everything the family is told.
fn hash(metadata: &Metadata) -> [u8; 32] {
    struct Into(Sha256);
    impl fmt::Write for Into {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut into = Into(Sha256::new());
    // Debug output quotes texts and names every field, so that two metadata never look alike.
    let _ = write!(into, "{metadata:?}");
    into.0.finalize().into()
}
