//! The native CPU engine: a family's program is checked, planned and executed here, on the kernels
//! of `gristmill-kernels` and the files of `gristmill-models`.

pub mod runtime;
