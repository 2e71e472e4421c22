//! Random models of a few thousand weights, in memory.

use std::{collections::HashMap, ops::Range};

use gristmill_core::{
    Error, Result,
    program::{Metadata, Program, TensorInfo, Value},
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
        let (width, heads, kv_heads, head_dim, ff, layers, vocabulary) = (64, 4, 2, 16, 96, 3, 200);
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

/// An encoder that uses every step the families above do not, and its program.
pub fn encoder() -> (Tiny, Program) {
    use super::{Steps, flag, float, int, tensor, text};
    let (width, vocabulary, positions) = (64, 120, 64);
    let mut tiny = Tiny::new("encoder");
    let mut p = Steps::new();
    tiny.tensor("embed", &[width, vocabulary], Quant::F16, 0.0, 1.0);
    tiny.tensor("positions", &[width, positions], Quant::F32, 0.0, 0.3);
    tiny.tensor("segments", &[width, 2], Quant::F32, 0.0, 0.3);
    tiny.tensor("short", &[width, 8], Quant::F32, 0.0, 0.3);
    tiny.tensor("norm", &[width], Quant::F32, 1.0, 0.3);
    tiny.tensor("norm.bias", &[width], Quant::F32, 0.0, 0.3);
    tiny.tensor("qkv", &[width, 3 * width], Quant::Q8_0, 0.0, 0.3);
    tiny.tensor("qkv.bias", &[3 * width], Quant::F32, 0.0, 0.3);
    tiny.tensor("out", &[width, width], Quant::F32, 0.0, 0.3);
    tiny.tensor("sinks", &[4], Quant::F32, 0.0, 1.0);
    tiny.tensor("inner", &[width, width], Quant::F32, 0.0, 0.3);
    tiny.tensor("factors", &[4], Quant::F32, 2.0, 0.5);
    tiny.tensor("router", &[width, 5], Quant::F32, 0.0, 0.3);
    tiny.tensor("moe.gate", &[width, 32, 5], Quant::F32, 0.0, 0.3);
    tiny.tensor("moe.up", &[width, 32, 5], Quant::F32, 0.0, 0.3);
    tiny.tensor("moe.down", &[32, width, 5], Quant::F32, 0.0, 0.3);

    let x = p.op("embed", &[], vec![tensor("weight", "embed")]);
    let x = p.op("position-embed", &[x], vec![tensor("weight", "positions")]);
    let x = p.op("segment-embed", &[x], vec![tensor("weight", "segments")]);
    let norm = vec![tensor("weight", "norm"), tensor("bias", "norm.bias"), float("eps", 1e-5)];
    let x = p.op("layer-norm", &[x], norm.clone());
    p.layer = Some(0);
    p.kv(vec![int("kv-heads", 4), int("head-dim", 16)]);
    let qkv = p.op(
        "linear",
        &[x],
        vec![tensor("weight", "qkv"), tensor("bias", "qkv.bias"), float("scale", 0.5)],
    );
    let part = |p: &mut Steps, n: usize| {
        p.op("slice", &[qkv], vec![int("start", n * width), int("length", width)])
    };
    let (q, k, v) = (part(&mut p, 0), part(&mut p, 1), part(&mut p, 2));
    let turn = |p: &mut Steps, x: u32| {
        p.op(
            "rope",
            &[x],
            vec![
                int("heads", 4),
                int("head-dim", 16),
                int("dims", 8),
                text("layout", "half"),
                float("base", 500.0),
                text("scaling", "linear"),
                float("factor", 2.0),
                tensor("factors", "factors"),
            ],
        )
    };
    let (q, k) = (turn(&mut p, q), turn(&mut p, k));
    let a = p.op(
        "attention",
        &[q, k, v],
        vec![
            int("heads", 4),
            int("kv-heads", 4),
            int("head-dim", 16),
            float("scale", 0.25),
            flag("causal", false),
            tensor("sinks", "sinks"),
        ],
    );
    let a = p.op("linear", &[a], vec![tensor("weight", "out")]);
    let x = p.op("add", &[x, a], vec![]);
    // A second branch that reads the sum again, so that it cannot be written in place.
    let inner = p.op("linear", &[x], vec![tensor("weight", "inner")]);
    let inner = p.op("activation", &[inner], vec![text("kind", "gelu")]);
    let inner = p.op("scale", &[inner], vec![float("factor", 0.25)]);
    let mixed = p.op(
        "moe",
        &[x],
        vec![
            tensor("router", "router"),
            tensor("gate", "moe.gate"),
            tensor("up", "moe.up"),
            tensor("down", "moe.down"),
            int("experts", 5),
            int("active", 2),
            text("activation", "silu"),
            text("scoring", "softmax"),
            flag("normalize", true),
        ],
    );
    let x = p.op("add", &[x, mixed], vec![]);
    let x = p.op("add", &[inner, x], vec![]);
    p.layer = None;
    let x = p.op("rms-norm", &[x], vec![float("eps", 1e-6)]);
    p.op("pool", &[x], vec![text("kind", "mean"), flag("normalize", true)]);
    let mut program = p.program(vocabulary as u32, width as u32, 1, positions as u32);
    program.extras.push(("unused".into(), "short".into()));
    (tiny, program)
}
