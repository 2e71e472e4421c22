//! How near our numbers are to an f32 forward pass, and how near llama.cpp's are.
//!
//! [`subject::Subject`] is a model as the product runs it: its family asked, its program checked and
//! planned, its weights packed. [`llama::Llama`] is llama.cpp, built from its
//! package as a program of its own. [`divergence::Divergence`] compares rows of logits.

pub mod divergence;
pub mod families;
pub mod llama;
pub mod subject;
