//! Made-up models in a store of their own, and an engine over it.

use std::{path::PathBuf, sync::Arc};

use gristmill_core::program::Dialect;
use gristmill_engine::{Engine, EngineConfig};
use gristmill_models::store::{Located, Silent, Store};
use gristmill_testing::models::{Family, Shape, write};
use tempfile::TempDir;

pub struct Room {
    pub dir: TempDir,
    pub store: Arc<Store>,
}

impl Room {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path().join("store")).unwrap());
        Self { dir, store }
    }

    /// A small random model of a family, changed on its way by `change`.
    pub fn model(
        &self,
        name: &str,
        family: Family,
        mix: &str,
        change: impl FnOnce(&mut Vec<u8>, &gristmill_models::Gguf),
    ) -> Located {
        let path = self.dir.path().join(format!("{name}.gguf"));
        write(&Shape::tiny(family), mix, 11, &path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes, &gristmill_models::Gguf::open(&path).unwrap());
        std::fs::write(&path, bytes).unwrap();
        self.store.import(path.to_str().unwrap(), Some(name), &mut Silent).unwrap()
    }

    pub fn engine(&self, config: EngineConfig) -> Arc<Engine> {
        let config = EngineConfig { pin: false, threads: Some(2), ..config };
        let families = super::families(Dialect::default());
        Engine::new(config, Arc::clone(&self.store), families).unwrap()
    }

    /// Files in the store's folder of this name.
    pub fn files(&self, folder: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.store.path().join(folder)) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}
