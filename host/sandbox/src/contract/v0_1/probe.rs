//! World `probe` of contract 0.1 as a [`Probe`].

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::Result;
use wasmtime::component::Component;

use super::{
    Linkers,
    convert::To,
    link,
    probe_bindings::{self, ProbePre},
    trial, wit, wrong_shape,
};
use crate::{
    backend::Backend,
    load::LoadError,
    plugin::{Guest, Plugin},
    probe::{Check, Plan, Probe},
};

/// Checks the component's shapes, starts it once, and makes it a probe.
pub(crate) fn load(
    linkers: &Linkers,
    component: &Component,
    plugin: Arc<Plugin>,
) -> std::result::Result<Arc<dyn Probe>, LoadError> {
    let pre = link(&linkers.probe, component)?;
    trial(&plugin, &pre, |store, instance| {
        probe_bindings::Probe::new(store, instance).map(|_| ())
    })?;
    let pre = ProbePre::new(pre).map_err(|error| wrong_shape(&error))?;
    Ok(Arc::new(Probing { plugin, pre }))
}

struct Probing {
    plugin: Arc<Plugin>,
    pre: ProbePre<Guest>,
}

#[async_trait]
impl Probe for Probing {
    fn digest(&self) -> &str {
        &self.plugin.digest
    }

    async fn checks(&self) -> Result<Vec<String>> {
        let mut cell = self.plugin.cell(self.plugin.grant.limits.call(), None)?;
        let guest = cell.gate.run(self.pre.instantiate_async(&mut cell.store)).await?;
        cell.gate.run(guest.gristmill_contract_probing().call_checks(&mut cell.store)).await
    }

    async fn run(&self, backend: Arc<dyn Backend>, plan: Plan) -> Result<Vec<Check>> {
        let plan: wit::probing::Plan = plan.to();
        let mut cell = self.plugin.cell(self.plugin.grant.limits.call(), Some(backend))?;
        let guest = cell.gate.run(self.pre.instantiate_async(&mut cell.store)).await?;
        let run = guest.gristmill_contract_probing().call_run(&mut cell.store, &plan);
        Ok(cell.gate.run(run).await?.to())
    }
}
