//! World `model-family` of contract 0.1.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::{
    Result,
    program::{Dialect, Metadata, Program},
};
use wasmtime::component::Component;

use super::{
    Linkers,
    convert::{To, guest_error},
    family_bindings::{ModelFamily, ModelFamilyPre},
    link, trial, wit, wrong_shape,
};
use crate::{
    family::{FamilyPlugin, FamilyWorld},
    fault::Fault,
    load::LoadError,
    plugin::{Guest, Plugin},
};

/// Checks the component's shapes, starts it once, and makes it a family.
pub(crate) fn load(
    linkers: &Linkers,
    component: &Component,
    plugin: Arc<Plugin>,
) -> std::result::Result<FamilyPlugin, LoadError> {
    let pre = link(&linkers.family, component)?;
    trial(&plugin, &pre, |store, instance| ModelFamily::new(store, instance).map(|_| ()))?;
    let pre = ModelFamilyPre::new(pre).map_err(|error| wrong_shape(&error))?;
    let world = Pure { plugin: Arc::clone(&plugin), pre };
    Ok(FamilyPlugin::new(plugin, Box::new(world)))
}

struct Pure {
    plugin: Arc<Plugin>,
    pre: ModelFamilyPre<Guest>,
}

#[async_trait]
impl FamilyWorld for Pure {
    async fn resolve(&self, metadata: &Metadata) -> Result<Option<(String, Program, Dialect)>> {
        let metadata: wit::family::Metadata = metadata.clone().to();
        let mut cell = self.plugin.cell(self.plugin.grant.limits.generation(), None)?;
        let guest = cell.gate.run(self.pre.instantiate_async(&mut cell.store)).await?;
        let family = guest.gristmill_contract_family();
        let refusal = |error| guest_error(error).unwrap_or_else(|fault| self.plugin.fault(&fault));

        let matches = family.call_matches(&mut cell.store, &metadata);
        let Some(name) = cell.gate.run(matches).await? else { return Ok(None) };
        if name.is_empty() || name.len() > 64 {
            let fault = Fault::Contract("a family's name has from 1 to 64 bytes");
            return Err(self.plugin.fault(&fault));
        }
        let architecture = family.call_architecture(&mut cell.store, &metadata);
        let program = cell.gate.run(architecture).await?.map_err(refusal)?;
        let speak = family.call_speak(&mut cell.store, &metadata);
        let dialect = cell.gate.run(speak).await?.map_err(refusal)?;
        Ok(Some((name, program.to(), dialect.to())))
    }
}
