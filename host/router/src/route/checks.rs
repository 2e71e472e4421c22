//! How the live back-ends are: what they have to do, and whether they can.

use std::time::Duration;

use futures_util::future::join_all;

use super::Router;
use crate::live::Slot;

/// Longest wait for a back-end's word on whether it is ready.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);

/// How much there is to do at one back-end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Its name.
    pub backend: String,
    /// Answers running.
    pub active: usize,
    /// Requests waiting.
    pub waiting: usize,
}

/// Whether one part can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The part.
    pub name: String,
    /// The back-end, where the part is one.
    pub backend: Option<String>,
    /// Yes or no.
    pub ready: bool,
    /// A sentence.
    pub detail: String,
}

impl Router {
    /// Running and waiting, by back-end.
    #[must_use]
    pub fn load_now(&self) -> Vec<Load> {
        let slots = self.backends.slots();
        slots
            .iter()
            .map(|slot| {
                let (active, waiting) = slot.load();
                Load { backend: slot.name.clone(), active, waiting }
            })
            .collect()
    }

    /// Asks every back-end whether it can serve, all at once. No back-end is not ready.
    pub async fn checks(&self) -> Vec<Check> {
        let slots = self.backends.slots();
        let mut checks = join_all(slots.iter().map(|slot| self.health(slot))).await;
        if checks.is_empty() {
            checks.push(Check {
                name: "backends".to_owned(),
                backend: None,
                ready: false,
                detail: "none is live".to_owned(),
            });
        }
        checks
    }

    async fn health(&self, slot: &Slot) -> Check {
        let generation = slot.current();
        let health = tokio::time::timeout(HEALTH_PATIENCE, generation.backend.health()).await;
        let (ready, detail) = match health {
            Ok(Ok(readiness)) => (readiness.ready, readiness.detail),
            Ok(Err(error)) => {
                self.backends.fault(&generation.digest, &error);
                (false, error.to_string())
            }
            Err(_) => (false, format!("no answer within {HEALTH_PATIENCE:?}")),
        };
        let backend = Some(slot.name.clone());
        Check { name: format!("backend {}", slot.name), backend, ready, detail }
    }
}
