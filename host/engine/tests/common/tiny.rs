//! Random models of a few thousand weights, in memory.

use std::{collections::HashMap, ops::Range};

use gristmill_core::{
    Error, Result,
    program::{Metadata, TensorInfo, Value},
};
use gristmill_engine::weights::Source;
use gristmill_kernels::{Bytes, Quant, encode_row};

/// A tensor table with its bytes.
pub struct Tiny {
    pub metadata: Metadata,
    data: HashMap<String, Vec<u8>>,
    state: u64,
}

impl Source for Tiny {
    fn bytes(&self, name: &str) -> Result<Bytes> {
        let data = self.data.get(name).ok_or_else(|| Error::invalid(format!("no {name}")))?;
        Ok(Bytes::from_vec(data.clone()))
    }

    fn part(&self, name: &str, range: Range<usize>) -> Result<Bytes> {
        let data = self.data.get(name).ok_or_else(|| Error::invalid(format!("no {name}")))?;
        Ok(Bytes::from_vec(data[range].to_vec()))
    }
}

impl Tiny {
    pub fn new(architecture: &str) -> Self {
        let metadata = Metadata { architecture: architecture.into(), ..Metadata::default() };
        Self { metadata, data: HashMap::new(), state: 7 }
    }

    pub fn key(&mut self, name: &str, value: Value) {
        self.metadata.keys.push((name.into(), value));
    }

    fn random(&mut self) -> f32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A tensor of random numbers in `around ± spread`.
    pub fn tensor(&mut self, name: &str, shape: &[usize], quant: Quant, around: f32, spread: f32) {
        let cols = shape[0];
        let rows: usize = shape[1..].iter().product();
        let size = quant.row_bytes(cols).unwrap();
        let mut bytes = vec![0; size * rows];
        for row in bytes.chunks_exact_mut(size) {
            let numbers: Vec<f32> = (0..cols).map(|_| around + spread * self.random()).collect();
            encode_row(quant, &numbers, row).unwrap();
        }
        self.data.insert(name.into(), bytes);
        self.metadata.tensors.push(TensorInfo {
            name: name.into(),
            shape: shape.iter().map(|n| *n as u64).collect(),
            element: quant.name().into(),
        });
    }

    /// A model of the llama kind (or qwen, gemma) with tensors of this type.
    pub fn family(architecture: &str, quant: Quant) -> Self {
        let (width, heads, kv_heads, head_dim, ff, layers, vocabulary) =
            (64, 4, 2, 16, 96, 3, 200);
        let gemma = architecture.starts_with("gemma");
        let mut tiny = Self::new(architecture);
        for (name, value) in [
            ("embedding_length", width),
            ("block_count", layers),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", head_dim),
            ("context_length", 1024),
            ("attention.sliding_window", 5),
        ] {
            tiny.key(&format!("{architecture}.{name}"), Value::Int(value as i64));
        }
        tiny.key(&format!("{architecture}.rope.freq_base"), Value::Float(1000.0));
        if architecture == "gemma2" {
            tiny.key("gemma2.attn_logit_softcapping", Value::Float(5.0));
            tiny.key("gemma2.final_logit_softcapping", Value::Float(3.0));
        }
        tiny.tensor("token_embd.weight", &[width, vocabulary], quant, 0.0, 1.0);
        for layer in 0..layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let mut linear = |part: &str, from: usize, to: usize| {
                let spread = 2.0 / (from as f32).sqrt();
                tiny.tensor(&name(&format!("{part}.weight")), &[from, to], quant, 0.0, spread);
            };
            linear("attn_q", width, heads * head_dim);
            linear("attn_k", width, kv_heads * head_dim);
            linear("attn_v", width, kv_heads * head_dim);
            linear("attn_output", heads * head_dim, width);
            linear("ffn_gate", width, ff);
            linear("ffn_up", width, ff);
            linear("ffn_down", ff, width);
            let mut vector = |part: &str, size: usize, around: f32| {
                tiny.tensor(&name(part), &[size], Quant::F32, around, 0.3);
            };
            vector("attn_norm.weight", width, 1.0);
            vector("ffn_norm.weight", width, 1.0);
            if architecture == "qwen2" {
                vector("attn_q.bias", heads * head_dim, 0.0);
                vector("attn_k.bias", kv_heads * head_dim, 0.0);
                vector("attn_v.bias", kv_heads * head_dim, 0.0);
            }
            if matches!(architecture, "qwen3" | "gemma3") {
                vector("attn_q_norm.weight", head_dim, 1.0);
                vector("attn_k_norm.weight", head_dim, 1.0);
            }
            if gemma {
                vector("post_attention_norm.weight", width, 1.0);
                vector("post_ffw_norm.weight", width, 1.0);
            }
        }
        tiny.tensor("output_norm.weight", &[width], Quant::F32, 1.0, 0.3);
        tiny
    }
}
