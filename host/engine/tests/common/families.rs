//! Llama, Qwen and Gemma as programs.

use gristmill_core::program::{Metadata, Program};

use super::{Steps, flag, float, int, number, number_or, real, tensor, text};

pub fn program(metadata: &Metadata) -> Option<Program> {
    match metadata.architecture.as_str() {
        "llama" | "qwen2" | "qwen3" => Some(llama(metadata)),
        "gemma2" | "gemma3" => Some(gemma(metadata)),
        _ => None,
    }
}

fn head_tensor(metadata: &Metadata) -> &'static str {
    if metadata.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" }
}

pub fn llama(metadata: &Metadata) -> Program {
    let arch = metadata.architecture.as_str();
    let key = |name: &str| format!("{arch}.{name}");
    let n = |name: &str| number(metadata, &key(name));
    let (width, layers, heads) =
        (n("embedding_length"), n("block_count"), n("attention.head_count"));
    let kv_heads = number_or(metadata, &key("attention.head_count_kv"), heads);
    let head_dim = number_or(metadata, &key("attention.key_length"), width / heads);
    let eps = real(metadata, &key("attention.layer_norm_rms_epsilon"), 1e-5);
    let base = real(metadata, &key("rope.freq_base"), 10_000.0);
    let layout = if arch == "llama" { "interleaved" } else { "half" };
    let vocabulary = metadata.tensor("token_embd.weight").unwrap().shape[1];

    let mut p = Steps::new();
    let mut x = p.op("embed", &[], vec![tensor("weight", "token_embd.weight")]);
    for layer in 0..layers {
        p.layer = Some(layer as u32);
        let name = |part: &str| format!("blk.{layer}.{part}");
        p.kv(vec![int("kv-heads", kv_heads), int("head-dim", head_dim)]);
        let linear = |p: &mut Steps, x: u32, part: &str| {
            let mut attributes = vec![tensor("weight", name(&format!("{part}.weight")))];
            if metadata.tensor(&name(&format!("{part}.bias"))).is_some() {
                attributes.push(tensor("bias", name(&format!("{part}.bias"))));
            }
            p.op("linear", &[x], attributes)
        };
        let norm = |p: &mut Steps, x: u32, part: &str| {
            p.op("rms-norm", &[x], vec![tensor("weight", name(part)), float("eps", eps)])
        };
        let h = norm(&mut p, x, "attn_norm.weight");
        let turned = |p: &mut Steps, part: &str, heads: usize| {
            let mut q = linear(p, h, part);
            let weight = name(&format!("{part}_norm.weight"));
            if metadata.tensor(&weight).is_some() {
                let attributes =
                    vec![tensor("weight", weight), float("eps", eps), int("heads", heads)];
                q = p.op("rms-norm", &[q], attributes);
            }
            let attributes = vec![
                int("heads", heads),
                int("head-dim", head_dim),
                text("layout", layout),
                float("base", base),
            ];
            p.op("rope", &[q], attributes)
        };
        let q = turned(&mut p, "attn_q", heads);
        let k = turned(&mut p, "attn_k", kv_heads);
        let v = linear(&mut p, h, "attn_v");
        let a = p.op(
            "attention",
            &[q, k, v],
            vec![
                int("heads", heads),
                int("kv-heads", kv_heads),
                int("head-dim", head_dim),
                float("scale", 1.0 / (head_dim as f64).sqrt()),
            ],
        );
        let o = linear(&mut p, a, "attn_output");
        x = p.op("add", &[x, o], vec![]);
        let h = norm(&mut p, x, "ffn_norm.weight");
        let gate = linear(&mut p, h, "ffn_gate");
        let up = linear(&mut p, h, "ffn_up");
        let inner = p.op("glu", &[gate, up], vec![text("activation", "silu")]);
        let down = linear(&mut p, inner, "ffn_down");
        x = p.op("add", &[x, down], vec![]);
    }
    p.layer = None;
    let h = p.op("rms-norm", &[x], vec![tensor("weight", "output_norm.weight"), float("eps", eps)]);
    p.op("head", &[h], vec![tensor("weight", head_tensor(metadata))]);
    p.program(vocabulary as u32, width as u32, layers as u32, n("context_length") as u32)
}

pub fn gemma(metadata: &Metadata) -> Program {
    let arch = metadata.architecture.as_str();
    let key = |name: &str| format!("{arch}.{name}");
    let n = |name: &str| number(metadata, &key(name));
    let (width, layers, heads) =
        (n("embedding_length"), n("block_count"), n("attention.head_count"));
    let kv_heads = n("attention.head_count_kv");
    let head_dim = n("attention.key_length");
    let eps = real(metadata, &key("attention.layer_norm_rms_epsilon"), 1e-6);
    let base = real(metadata, &key("rope.freq_base"), 10_000.0);
    let window = n("attention.sliding_window");
    let period = if arch == "gemma3" { 6 } else { 2 };
    let cap = |name: &str| {
        metadata.get(&key(name)).map(|_| float("softcap", real(metadata, &key(name), 0.0)))
    };
    let vocabulary = metadata.tensor("token_embd.weight").unwrap().shape[1];

    let mut p = Steps::new();
    let mut x = p.op(
        "embed",
        &[],
        vec![tensor("weight", "token_embd.weight"), float("scale", (width as f64).sqrt())],
    );
    for layer in 0..layers {
        p.layer = Some(layer as u32);
        let slides = (layer + 1) % period != 0;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let mut state = vec![int("kv-heads", kv_heads), int("head-dim", head_dim)];
        if slides {
            state.push(int("window", window));
        }
        p.kv(state);
        let linear = |p: &mut Steps, x: u32, part: &str| {
            p.op("linear", &[x], vec![tensor("weight", name(&format!("{part}.weight")))])
        };
        let norm = |p: &mut Steps, x: u32, part: &str| {
            p.op("rms-norm", &[x], vec![tensor("weight", name(part)), float("eps", eps)])
        };
        let h = norm(&mut p, x, "attn_norm.weight");
        let turned = |p: &mut Steps, part: &str, heads: usize| {
            let mut q = linear(p, h, part);
            let weight = name(&format!("{part}_norm.weight"));
            if metadata.tensor(&weight).is_some() {
                let attributes =
                    vec![tensor("weight", weight), float("eps", eps), int("heads", heads)];
                q = p.op("rms-norm", &[q], attributes);
            }
            let base = if slides && arch == "gemma3" { 10_000.0 } else { base };
            let attributes = vec![
                int("heads", heads),
                int("head-dim", head_dim),
                text("layout", "half"),
                float("base", base),
            ];
            p.op("rope", &[q], attributes)
        };
        let q = turned(&mut p, "attn_q", heads);
        let k = turned(&mut p, "attn_k", kv_heads);
        let v = linear(&mut p, h, "attn_v");
        let mut attributes = vec![
            int("heads", heads),
            int("kv-heads", kv_heads),
            int("head-dim", head_dim),
            float("scale", 1.0 / (head_dim as f64).sqrt()),
            flag("causal", true),
        ];
        if slides {
            attributes.push(int("window", window));
        }
        attributes.extend(cap("attn_logit_softcapping"));
        let a = p.op("attention", &[q, k, v], attributes);
        let o = linear(&mut p, a, "attn_output");
        let o = norm(&mut p, o, "post_attention_norm.weight");
        x = p.op("add", &[x, o], vec![]);
        let h = norm(&mut p, x, "ffn_norm.weight");
        let gate = linear(&mut p, h, "ffn_gate");
        let up = linear(&mut p, h, "ffn_up");
        let inner = p.op("glu", &[gate, up], vec![text("activation", "gelu-tanh")]);
        let down = linear(&mut p, inner, "ffn_down");
        let down = norm(&mut p, down, "post_ffw_norm.weight");
        x = p.op("add", &[x, down], vec![]);
    }
    p.layer = None;
    let h = p.op("rms-norm", &[x], vec![tensor("weight", "output_norm.weight"), float("eps", eps)]);
    let mut head = vec![tensor("weight", head_tensor(metadata))];
    head.extend(cap("final_logit_softcapping"));
    p.op("head", &[h], head);
    p.program(vocabulary as u32, width as u32, layers as u32, n("context_length") as u32)
}
