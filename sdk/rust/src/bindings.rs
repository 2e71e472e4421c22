//! Generated from `wit/v0.1`. Hidden: authors use what the other modules re-export; the exporting
//! macros need the paths. The types every world shares are generated once, in [`shared`].
#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::restriction,
    reason = "generated code"
)]

/// Types, capabilities, and the two imports that more than one world has.
pub mod shared {
    wit_bindgen::generate!({
        path: "../../wit/v0.1",
        inline: "
            package gristmill:sdk;
            world shared {
                import gristmill:contract/types@0.1.0;
                import gristmill:contract/capability@0.1.0;
                import gristmill:contract/log@0.1.0;
                import gristmill:contract/clock@0.1.0;
            }
        ",
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        additional_type_attributes: {
            "gristmill:contract/types@0.1.0/sampling": [#[derive(Default)]],
        },
        runtime_path: "::gristmill_plugin::wit_bindgen::rt",
    });
}

#[cfg(feature = "backend")]
pub mod backend {
    wit_bindgen::generate!({
        path: "../../wit/v0.1",
        world: "backend",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::gristmill_plugin::bindings::backend",
        with: {
            "gristmill:contract/types@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::types,
            "gristmill:contract/capability@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::capability,
            "gristmill:contract/log@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::log,
            "gristmill:contract/clock@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::clock,
        },
        additional_derives: [PartialEq],
        runtime_path: "::gristmill_plugin::wit_bindgen::rt",
    });
}

#[cfg(feature = "family")]
pub mod family {
    wit_bindgen::generate!({
        path: "../../wit/v0.1",
        world: "model-family",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::gristmill_plugin::bindings::family",
        with: {
            "gristmill:contract/types@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::types,
        },
        additional_derives: [PartialEq],
        runtime_path: "::gristmill_plugin::wit_bindgen::rt",
    });
}

#[cfg(feature = "probe")]
pub mod probe {
    wit_bindgen::generate!({
        path: "../../wit/v0.1",
        world: "probe",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::gristmill_plugin::bindings::probe",
        with: {
            "gristmill:contract/types@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::types,
            "gristmill:contract/capability@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::capability,
            "gristmill:contract/log@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::log,
            "gristmill:contract/clock@0.1.0":
                ::gristmill_plugin::bindings::shared::gristmill::contract::clock,
        },
        additional_derives: [PartialEq],
        runtime_path: "::gristmill_plugin::wit_bindgen::rt",
    });
}
