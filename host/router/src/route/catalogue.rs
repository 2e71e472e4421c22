//! What there is: the models that can be asked for, what is stored, what is in memory.

use std::sync::Arc;

use futures_util::future::join_all;
use gristmill_core::{Error, Result, capability::ModelInfo};
use gristmill_engine::runtime::Loaded;

use super::{Plan, Router, called, missing};
use crate::{
    generation::LISTING_FRESH,
    keep::Expiry,
    live::{Slot, Source},
    models::{Card, Progress, Record},
    name,
};

/// A model that is in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Resident {
    /// Sizes and activity.
    pub loaded: Loaded,
    /// What the store knows of it.
    pub record: Option<Record>,
    /// When it will go.
    pub expiry: Expiry,
}

impl Router {
    /// Every model that can be asked for: the store's, if a live back-end serves stored models,
    /// then each back-end's own. A model whose name an earlier back-end answers to is listed as
    /// `NAME/model`, by which it can be asked for. A back-end that cannot be asked is left out and
    /// named by [`Router::unreachable`].
    ///
    /// # Errors
    /// The store's own error.
    pub async fn catalogue(&self) -> Result<Vec<Record>> {
        let slots = self.backends.slots();
        let mut records: Vec<Record> = Vec::new();
        if let Some(slot) = slots.iter().find(|slot| slot.source == Source::Store) {
            records = self.models.list().await?;
            let generation = slot.current();
            for record in &mut records {
                record.info = self.judged(&generation, std::mem::take(&mut record.info)).await;
            }
        }
        let listed: Vec<_> = slots.iter().filter(|slot| slot.source == Source::Listed).collect();
        // All at once: servers that are down are waited for together.
        let lists = join_all(listed.iter().map(|slot| async {
            let generation = slot.current();
            let models = generation.models(LISTING_FRESH).await;
            (generation, models)
        }));
        for (slot, (generation, models)) in listed.iter().zip(lists.await) {
            let Ok(models) = models else {
                self.backends.unlisted(&slot.name, &generation);
                continue;
            };
            for info in models.iter() {
                let mut info = self.judged(&generation, info.clone()).await;
                let key = name::fold(&info.id);
                if records.iter().any(|known| name::answers_to(&known.info, &key)) {
                    info.id = format!("{}/{}", slot.name, info.id);
                    info.names.clear();
                }
                records.push(Record { info, ..Record::default() });
            }
        }
        Ok(records)
    }

    /// Back-ends that could not be asked for their models the last time, and why.
    #[must_use]
    pub fn unreachable(&self) -> Vec<(String, Error)> {
        let slots = self.backends.slots();
        let failed = |slot: &Arc<Slot>| Some((slot.name.clone(), slot.current().failure()?));
        slots.iter().filter_map(failed).collect()
    }

    /// Everything about one model.
    ///
    /// # Errors
    /// As [`Models::show`].
    pub async fn show(&self, plan: Plan) -> Result<Card> {
        match plan.slot.source {
            Source::Store => {
                let mut card = self.models.show(&plan.info.id).await?;
                card.record.info = self.judged(&plan.generation, card.record.info).await;
                Ok(card)
            }
            Source::Listed => Ok(Card {
                record: Record { info: Arc::unwrap_or_clone(plan.info), ..Record::default() },
                ..Card::default()
            }),
        }
    }

    /// Fetches a model into the store.
    ///
    /// # Errors
    /// As [`Models::pull`].
    pub async fn pull(&self, name: &str, progress: Progress) -> Result<Record> {
        name::key(name)?;
        self.models.pull(name, progress).await
    }

    /// Removes a stored name, and the model from memory when it was its last one.
    ///
    /// # Errors
    /// As [`Models::remove`].
    pub async fn remove(&self, asked: &str) -> Result<()> {
        let key = name::key(asked)?;
        let record = self.stored(called(&key)).await?.ok_or_else(|| missing(asked))?;
        self.models.remove(spelling(&record.info, &key)).await?;
        if self.stored(called(&name::fold(&record.info.id))).await?.is_none() {
            self.keeper.unload(&record.info.id).await;
        }
        Ok(())
    }

    /// Gives a stored model one more name.
    ///
    /// # Errors
    /// As [`Models::copy`].
    pub async fn copy(&self, source: &str, destination: &str) -> Result<()> {
        let key = name::key(source)?;
        name::key(destination)?;
        let record = self.stored(called(&key)).await?.ok_or_else(|| missing(source))?;
        self.models.copy(spelling(&record.info, &key), destination.trim()).await
    }

    /// What is in memory, the longest-lived first.
    ///
    /// # Errors
    /// The store's own error.
    pub async fn residents(&self) -> Result<Vec<Resident>> {
        let records = self.models.list().await?;
        let mut residents: Vec<_> = self
            .residency
            .loaded()
            .into_iter()
            .map(|loaded| Resident {
                record: records.iter().find(|record| record.info.id == loaded.id).cloned(),
                // Loaded by other hands than the router's: nobody will let go of it.
                expiry: self.keeper.expiry(&loaded.id).unwrap_or(Expiry::Never),
                loaded,
            })
            .collect();
        residents.sort_by_key(|resident| match resident.expiry {
            Expiry::Never => None,
            Expiry::At(time) => Some(std::cmp::Reverse(time)),
        });
        Ok(residents)
    }
}

/// The name as the store spells it.
fn spelling<'a>(info: &'a ModelInfo, key: &str) -> &'a str {
    info.names.iter().find(|name| name::fold(name) == key).unwrap_or(&info.id)
}
