//! Contract 0.1: the generated bindings of its three worlds, and what implements the internal traits
//! with them. Nothing outside of this folder names a generated type.

pub(crate) mod backend;
mod convert;
pub(crate) mod family;
mod host;
pub(crate) mod probe;

use std::sync::Arc;

use wasmtime::{
    Engine, Store,
    component::{Component, HasSelf, Instance, InstancePre, Linker},
};

use crate::{
    load::{LoadError, one_line},
    plugin::{Guest, Plugin},
    sandbox::apart,
};

/// World `backend`.
#[allow(
    missing_docs,
    unsafe_code,
    unused_qualifications,
    unreachable_pub,
    reason = "generated; wit/v0.1 is the documentation"
)]
mod bindings {
    wasmtime::component::bindgen!({
        world: "backend",
        path: "../../wit/v0.1",
        imports: {
            // These never wait.
            "gristmill:contract/log": trappable,
            "gristmill:contract/clock": trappable,
            default: async | trappable,
        },
        exports: { default: async },
        with: {
            "gristmill:contract/upstream.response": super::host::Response,
            "gristmill:contract/engine.model": super::host::Model,
            "gristmill:contract/engine.decoding": super::host::Decoding,
            "gristmill:contract/engine.session": super::host::Session,
            "gristmill:contract/kernels.matrix": super::host::Matrix,
            "gristmill:contract/onnx.graph": super::host::Graph,
        },
    });
}

/// World `model-family`, with the words of [`bindings`].
#[allow(
    missing_docs,
    unsafe_code,
    unused_qualifications,
    unreachable_pub,
    reason = "generated; wit/v0.1 is the documentation"
)]
mod family_bindings {
    wasmtime::component::bindgen!({
        world: "model-family",
        path: "../../wit/v0.1",
        exports: { default: async },
        with: { "gristmill:contract/types": super::bindings::gristmill::contract::types },
    });
}

/// World `probe`, with the words of [`bindings`].
#[allow(
    missing_docs,
    unsafe_code,
    unused_qualifications,
    unreachable_pub,
    reason = "generated; wit/v0.1 is the documentation"
)]
mod probe_bindings {
    wasmtime::component::bindgen!({
        world: "probe",
        path: "../../wit/v0.1",
        imports: { default: async | trappable },
        exports: { default: async },
        with: {
            "gristmill:contract/types": super::bindings::gristmill::contract::types,
            "gristmill:contract/capability": super::bindings::gristmill::contract::capability,
            "gristmill:contract/log": super::bindings::gristmill::contract::log,
            "gristmill:contract/clock": super::bindings::gristmill::contract::clock,
            "gristmill:contract/serving.generation": super::host::Probed,
        },
    });
}

/// The generated words, by the names they have in the WIT.
mod wit {
    pub(super) use super::{
        bindings::gristmill::contract::{capability::*, engine, log, types::*},
        family_bindings::exports::gristmill::contract::family,
        probe_bindings::exports::gristmill::contract::probing,
    };
}

/// What each world's imports lead to.
pub(crate) struct Linkers {
    backend: Linker<Guest>,
    family: Linker<Guest>,
    probe: Linker<Guest>,
}

impl Linkers {
    pub(crate) fn new(engine: &Engine) -> wasmtime::Result<Self> {
        use bindings::gristmill::contract as host;
        type Has = HasSelf<Guest>;

        let mut family = Linker::new(engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut family)?;

        let mut backend = family.clone();
        host::upstream::add_to_linker::<Guest, Has>(&mut backend, |guest| guest)?;
        host::engine::add_to_linker::<Guest, Has>(&mut backend, |guest| guest)?;
        host::kernels::add_to_linker::<Guest, Has>(&mut backend, |guest| guest)?;
        host::onnx::add_to_linker::<Guest, Has>(&mut backend, |guest| guest)?;
        host::log::add_to_linker::<Guest, Has>(&mut backend, |guest| guest)?;
        host::clock::add_to_linker::<Guest, Has>(&mut backend, |guest| guest)?;

        let mut probe = family.clone();
        probe_bindings::gristmill::contract::serving::add_to_linker::<Guest, Has>(
            &mut probe,
            |guest| guest,
        )?;
        host::log::add_to_linker::<Guest, Has>(&mut probe, |guest| guest)?;
        host::clock::add_to_linker::<Guest, Has>(&mut probe, |guest| guest)?;

        Ok(Self { backend, family, probe })
    }
}

/// Checks the imports' shapes.
fn link(linker: &Linker<Guest>, component: &Component) -> Result<InstancePre<Guest>, LoadError> {
    linker.instantiate_pre(component).map_err(|error| LoadError::WrongShape(one_line(&error)))
}

/// wasmtime's reason why an export is missing.
fn wrong_shape(error: &wasmtime::Error) -> LoadError {
    LoadError::WrongShape(one_line(error))
}

/// Starts an instance once, under its limits, and checks the shapes of its exports.
fn trial(
    plugin: &Arc<Plugin>,
    pre: &InstancePre<Guest>,
    check: impl FnOnce(&mut Store<Guest>, &Instance) -> wasmtime::Result<()> + Send,
) -> Result<(), LoadError> {
    let started = async {
        let mut cell = plugin.cell(plugin.grant.limits.call(), None)?;
        let instance = cell.gate.run(pre.instantiate_async(&mut cell.store)).await?;
        Ok(check(&mut cell.store, &instance))
    };
    apart(started).map_err(LoadError::Start)?.map_err(|error| wrong_shape(&error))
}
