//! Building a program, so that it reads like the model:
//!
//! ```
//! # use gristmill_plugin::prelude::*;
//! # fn program(model: &Metadata) -> Result<Program> {
//! let (eps, attention) = (1e-5, Attention::of(model)?);
//! let p = Builder::new(model)?;
//! let mut x = p.embed("token_embd");
//! for layer in 0..p.layers() {
//!     let l = p.layer(layer);
//!     let h = l.rms_norm(x, "attn_norm", eps);
//!     let (q, k, v) = l.qkv(h, &attention);
//!     x = l.add(x, l.linear(l.attention(q, k, v, &attention), "attn_output"));
//! }
//! p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
//! # }
//! ```
//!
//! Tensors go by their *stem*: in layer 3 `"attn_q"` is `blk.3.attn_q.weight`, and a bias is added
//! if the file has `blk.3.attn_q.bias`. The first thing that goes wrong (a missing tensor) is kept
//! and comes out of [`Builder::finish`]. The steps are those of `docs/program.md`.

use alloc::{
    borrow::ToOwned,
    format,
    rc::Rc,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::{cell::RefCell, fmt};

use super::{
    Activation, Attention, Attribute, Layout, Metadata, Moe, Program, Rope, Scaling, Scoring,
    State, Step,
};
use crate::{Error, Extras, Result};

/// More layers than any model has: metadata that claims them is damaged.
const MOST_LAYERS: u32 = 1024;

/// A value of the program: one row per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand(u32);

/// Collects steps. Outside the layers as [`Builder::new`] gives it, inside one as
/// [`Builder::layer`] does; both add to the same program.
#[derive(Debug, Clone)]
pub struct Builder<'m> {
    pub(super) model: &'m Metadata,
    pub(super) layer: Option<u32>,
    layers: u32,
    pub(super) parts: Rc<RefCell<Parts>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    steps: Vec<Step>,
    pub(super) states: Vec<State>,
    values: u32,
    extras: Extras,
    error: Option<Error>,
}

type Attributes = Vec<(String, Attribute)>;

impl<'m> Builder<'m> {
    /// An empty program for this model.
    ///
    /// # Errors
    /// `invalid-request` when `{arch}.block_count` is missing or absurd.
    pub fn new(model: &'m Metadata) -> Result<Self> {
        let layers = model.u32("{arch}.block_count")?;
        let ahead = model.find_u32("{arch}.nextn_predict_layers")?.unwrap_or(0);
        if layers == 0 || layers > MOST_LAYERS {
            return Err(Error::invalid_request(format!(
                "{}.block_count should be 1 to {MOST_LAYERS}, found {layers}",
                model.architecture
            )));
        }
        if ahead >= layers {
            return Err(Error::invalid_request(format!(
                "{}.nextn_predict_layers should be below the {layers} layers, found {ahead}",
                model.architecture
            )));
        }
        let program = Self { model, layer: None, layers: layers - ahead, parts: Rc::default() };
        let last = |name: &str| {
            let layer = name.strip_prefix("blk.")?.split('.').next()?;
            layer.parse::<u32>().ok().filter(|layer| *layer >= layers - ahead)
        };
        let names = model.tensors.iter().map(|tensor| &*tensor.name);
        let unused: Vec<&str> = names.filter(|name| last(name).is_some()).collect();
        if !unused.is_empty() {
            program.extra("unused", &unused.join(" "));
        }
        Ok(program)
    }

    /// How many layers the model has, without those that guess ahead (`nextn_predict_layers`),
    /// whose tensors are listed as unused.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// The same program, inside this layer.
    #[must_use]
    pub fn layer(&self, layer: u32) -> Self {
        Self { layer: Some(layer), ..self.clone() }
    }

    /// Whether the file has this tensor (by its stem).
    #[must_use]
    pub fn has(&self, stem: &str) -> bool {
        self.model.find_tensor(&self.name(stem, "weight")).is_some()
    }

    /// Rows of a matrix, 0 if the file does not have it.
    #[must_use]
    pub fn rows(&self, stem: &str) -> u32 {
        let tensor = self.model.find_tensor(&self.name(stem, "weight"));
        let rows = tensor.and_then(|tensor| tensor.shape.get(1)).copied().unwrap_or(0);
        u32::try_from(rows).unwrap_or(u32::MAX)
    }

    /// Says something about the whole program, for instance `unused`: tensors no step reads.
    /// `pooling` is said by [`Builder::finish`], from `{arch}.pooling_type`.
    pub fn extra(&self, name: &str, value: &str) {
        self.parts.borrow_mut().extras.push((name.to_owned(), value.to_owned()));
    }

    /// The row of each token.
    #[must_use]
    pub fn embed(&self, stem: &str) -> Operand {
        self.embed_scaled(stem, 1.0)
    }

    /// The row of each token, times `scale`.
    #[must_use]
    pub fn embed_scaled(&self, stem: &str, scale: f64) -> Operand {
        let mut with = vec![self.weight(stem)];
        unless(&mut with, "scale", scale, 1.0);
        self.step("embed", &[], with)
    }

    /// Adds the row of each token's position.
    #[must_use]
    pub fn position_embed(&self, x: Operand, stem: &str) -> Operand {
        self.step("position-embed", &[x], vec![self.weight(stem)])
    }

    /// Adds the row of the segment, which is the first: an answer or a text is one segment.
    #[must_use]
    pub fn segment_embed(&self, x: Operand, stem: &str) -> Operand {
        self.step("segment-embed", &[x], vec![self.weight(stem)])
    }

    /// Root mean square norm of whole rows.
    #[must_use]
    pub fn rms_norm(&self, x: Operand, stem: &str, eps: f64) -> Operand {
        self.step("rms-norm", &[x], vec![self.weight(stem), float("eps", eps)])
    }

    /// Root mean square norm of each head, with one weight for all heads.
    #[must_use]
    pub fn head_norm(&self, x: Operand, stem: &str, eps: f64, heads: u32) -> Operand {
        let with = vec![self.weight(stem), float("eps", eps), int("heads", heads)];
        self.step("rms-norm", &[x], with)
    }

    /// Layer norm; with a bias if the file has one.
    #[must_use]
    pub fn layer_norm(&self, x: Operand, stem: &str, eps: f64) -> Operand {
        let mut with = vec![self.weight(stem)];
        with.extend(self.bias(stem));
        with.push(float("eps", eps));
        self.step("layer-norm", &[x], with)
    }

    /// `W x`; with a bias if the file has one.
    #[must_use]
    pub fn linear(&self, x: Operand, stem: &str) -> Operand {
        let mut with = vec![self.weight(stem)];
        with.extend(self.bias(stem));
        self.step("linear", &[x], with)
    }

    /// Query, key and value of `x`: by `attn_q`, `attn_k`, `attn_v`, or by the fused `attn_qkv` if
    /// that is what the file has.
    #[must_use]
    pub fn qkv(&self, x: Operand, attention: &Attention) -> (Operand, Operand, Operand) {
        if !self.has("attn_qkv") {
            return (self.linear(x, "attn_q"), self.linear(x, "attn_k"), self.linear(x, "attn_v"));
        }
        let fused = self.linear(x, "attn_qkv");
        let q = attention.heads * attention.head_dim;
        let kv = attention.kv_heads * attention.head_dim;
        (self.slice(fused, 0, q), self.slice(fused, q, kv), self.slice(fused, q + kv, kv))
    }

    /// Rotary position embedding of `heads` heads.
    #[must_use]
    pub fn rope(&self, x: Operand, heads: u32, rope: &Rope) -> Operand {
        let layout = match rope.layout {
            Layout::Interleaved => "interleaved",
            Layout::Half => "half",
        };
        let mut with = vec![int("heads", heads), int("head-dim", rope.head_dim)];
        if rope.offset > 0 {
            with.push(int("offset", rope.offset));
        }
        with.extend([int("dims", rope.dims), text("layout", layout), float("base", rope.base)]);
        match rope.scaling {
            Scaling::None => unless(&mut with, "attention-factor", rope.attention_factor, 1.0),
            Scaling::Linear { factor } => {
                with.extend([text("scaling", "linear"), float("factor", factor)]);
            }
            Scaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
                with.extend([
                    text("scaling", "yarn"),
                    float("factor", factor),
                    int("original-context", original_context),
                    float("beta-fast", beta_fast),
                    float("beta-slow", beta_slow),
                    float("attention-factor", attention_factor),
                ]);
            }
        }
        with.extend(rope.factors.clone().map(|name| tensor("factors", name)));
        if let Some((name, context)) = &rope.long_factors {
            with.push(tensor("long-factors", name.clone()));
            with.push(int("original-context", *context));
        }
        self.step("rope", &[x], with)
    }

    /// Attention over the layer's cache, to which `k` and `v` are appended.
    #[must_use]
    pub fn attention(&self, q: Operand, k: Operand, v: Operand, of: &Attention) -> Operand {
        let mut cache = vec![int("kv-heads", of.kv_heads), int("head-dim", of.head_dim)];
        cache.extend(of.window.map(|tokens| int("window", tokens)));
        match self.layer {
            Some(layer) => {
                let state = State { kind: "kv".to_owned(), layer, attributes: cache };
                self.parts.borrow_mut().states.push(state);
            }
            None => self.fail(Error::internal("attention must be inside a layer")),
        }
        let mut with = vec![
            int("heads", of.heads),
            int("kv-heads", of.kv_heads),
            int("head-dim", of.head_dim),
            float("scale", of.scale),
        ];
        if !of.causal {
            with.push(flag("causal", false));
        }
        with.extend(of.window.map(|tokens| int("window", tokens)));
        with.extend(of.softcap.map(|cap| float("softcap", cap)));
        if let Some(stem) = &of.sinks {
            with.push(tensor("sinks", self.known(stem, "weight")));
        }
        self.step("attention", &[q, k, v], with)
    }

    /// `activation(gate) · up`; a gate narrower than `up` has one number for each part of it.
    #[must_use]
    pub fn glu(&self, gate: Operand, up: Operand, activation: Activation) -> Operand {
        self.step("glu", &[gate, up], vec![text("activation", activation.word())])
    }

    /// The usual gated feed-forward: `ffn_gate`, `ffn_up`, `ffn_down`; without `ffn_gate`, `ffn_up`
    /// makes the gate and then up.
    #[must_use]
    pub fn gated_ffn(&self, x: Operand, activation: Activation) -> Operand {
        if self.has("ffn_gate") {
            return self.ffn_of(x, activation, ["ffn_gate", "ffn_up", "ffn_down"]);
        }
        let both = self.linear(x, "ffn_up");
        let half = self.rows("ffn_up") / 2;
        let (gate, up) = (self.slice(both, 0, half), self.slice(both, half, half));
        self.linear(self.glu(gate, up, activation), "ffn_down")
    }

    /// Experts if the model and this layer have them, the usual gated feed-forward otherwise; with
    /// the shared expert, behind its own gate, if the layer has one.
    #[must_use]
    pub fn feed_forward(&self, x: Operand, moe: Option<&Moe>, activation: Activation) -> Operand {
        let Some(moe) = moe.filter(|_| self.has("ffn_gate_inp")) else {
            return self.gated_ffn(x, activation);
        };
        let chosen = self.moe(x, moe);
        if !self.has("ffn_up_shexp") {
            return chosen;
        }
        let mut shared = self.shared_expert(x, activation);
        if self.has("ffn_gate_inp_shexp") {
            let gate = self.linear(x, "ffn_gate_inp_shexp");
            shared = self.glu(gate, shared, Activation::Sigmoid);
        }
        self.add(chosen, shared)
    }

    /// The expert every token asks: `ffn_gate_shexp`, `ffn_up_shexp`, `ffn_down_shexp`.
    #[must_use]
    pub fn shared_expert(&self, x: Operand, activation: Activation) -> Operand {
        self.ffn_of(x, activation, ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"])
    }

    fn ffn_of(&self, x: Operand, activation: Activation, [gate, up, down]: [&str; 3]) -> Operand {
        let hidden = self.glu(self.linear(x, gate), self.linear(x, up), activation);
        self.linear(hidden, down)
    }

    /// An activation, element by element.
    #[must_use]
    pub fn activation(&self, x: Operand, activation: Activation) -> Operand {
        self.step("activation", &[x], vec![text("kind", activation.word())])
    }

    /// Sum.
    #[must_use]
    pub fn add(&self, a: Operand, b: Operand) -> Operand {
        self.step("add", &[a, b], Vec::new())
    }

    /// `factor · x`
    #[must_use]
    pub fn scale(&self, x: Operand, factor: f64) -> Operand {
        self.step("scale", &[x], vec![float("factor", factor)])
    }

    /// `x · (1 + factor · ln(1 + ⌊position / length⌋))`: queries that grow with their position.
    #[must_use]
    pub fn position_scale(&self, x: Operand, factor: f64, length: u32) -> Operand {
        self.step("position-scale", &[x], vec![float("factor", factor), int("length", length)])
    }

    /// Columns `start .. start + length` of each row.
    #[must_use]
    pub fn slice(&self, x: Operand, start: u32, length: u32) -> Operand {
        self.step("slice", &[x], vec![int("start", start), int("length", length)])
    }

    /// The same columns of each of `heads` equal parts of a row.
    #[must_use]
    pub fn slice_heads(&self, x: Operand, heads: u32, start: u32, length: u32) -> Operand {
        let with = vec![int("start", start), int("length", length), int("heads", heads)];
        self.step("slice", &[x], with)
    }

    /// Each of `heads` equal parts of `a`, followed by that of `b`.
    #[must_use]
    pub fn concat(&self, a: Operand, b: Operand, heads: u32) -> Operand {
        self.step("concat", &[a, b], vec![int("heads", heads)])
    }

    /// Each of `heads` equal parts times a matrix of its own: `stem` is `[in, out, heads]`.
    #[must_use]
    pub fn head_linear(&self, x: Operand, stem: &str, heads: u32) -> Operand {
        self.step("head-linear", &[x], vec![self.weight(stem), int("heads", heads)])
    }

    /// The best experts' sum: `ffn_gate_inp`, `ffn_gate_exps`, `ffn_up_exps`, `ffn_down_exps`, with
    /// what biases the file has for them, and `exp_probs_b.bias` added where experts are chosen.
    #[must_use]
    pub fn moe(&self, x: Operand, of: &Moe) -> Operand {
        let named = |name: &str, stem: &str| tensor(name, self.known(stem, "weight"));
        let scoring = match of.scoring {
            Scoring::Softmax => "softmax",
            Scoring::Sigmoid => "sigmoid",
            Scoring::Chosen => "softmax-chosen",
        };
        let mut with = vec![
            named("router", "ffn_gate_inp"),
            named("gate", "ffn_gate_exps"),
            named("up", "ffn_up_exps"),
            named("down", "ffn_down_exps"),
            int("experts", of.experts),
            int("active", of.active),
            text("activation", of.activation.word()),
            text("scoring", scoring),
            flag("normalize", of.normalize),
        ];
        unless(&mut with, "scale", of.scale, 1.0);
        if of.groups > 1 {
            with.extend([int("groups", of.groups), int("active-groups", of.active_groups)]);
        }
        for (name, stem) in [
            ("router-bias", "ffn_gate_inp"),
            ("selection-bias", "exp_probs_b"),
            ("gate-bias", "ffn_gate_exps"),
            ("up-bias", "ffn_up_exps"),
            ("down-bias", "ffn_down_exps"),
        ] {
            with.extend(self.bias(stem).map(|(_, value)| (name.to_owned(), value)));
        }
        self.step("moe", &[x], with)
    }

    /// Logits. A model without `stem` shares the weights of its embedding, `token_embd`.
    #[must_use]
    pub fn head(&self, x: Operand, stem: &str, softcap: Option<f64>) -> Operand {
        self.head_scaled(x, stem, 1.0, softcap)
    }

    /// Logits times `scale`, before the cap.
    #[must_use]
    pub fn head_scaled(&self, x: Operand, stem: &str, scale: f64, softcap: Option<f64>) -> Operand {
        let stem = if self.has(stem) { stem } else { "token_embd" };
        let mut with = vec![self.weight(stem)];
        with.extend(self.bias(stem));
        unless(&mut with, "scale", scale, 1.0);
        with.extend(softcap.map(|cap| float("softcap", cap)));
        self.step("head", &[x], with)
    }

    /// One vector per sequence; `kind` is `mean`, `cls` or `last`.
    #[must_use]
    pub fn pool(&self, x: Operand, kind: &str, normalize: bool) -> Operand {
        self.step("pool", &[x], vec![text("kind", kind), flag("normalize", normalize)])
    }

    /// Any step by name, for an operation this crate has no method for. It has one result.
    #[must_use]
    pub fn step(&self, op: &str, inputs: &[Operand], attributes: Attributes) -> Operand {
        let mut parts = self.parts.borrow_mut();
        let value = parts.values;
        parts.values += 1;
        parts.steps.push(Step {
            op: op.to_owned(),
            layer: self.layer,
            inputs: inputs.iter().map(|operand| operand.0).collect(),
            outputs: vec![value],
            attributes,
        });
        Operand(value)
    }

    /// The program whose result is this value: logits, or the pooled vector.
    ///
    /// # Errors
    /// The first thing that went wrong; `invalid-request` when `{arch}.embedding_length`,
    /// `{arch}.context_length` or the tensor `token_embd.weight` is missing.
    pub fn finish(&self, result: Operand) -> Result<Program> {
        let parts = self.parts.borrow().clone();
        if let Some(error) = parts.error {
            return Err(error);
        }
        let mut extras = parts.extras;
        if let Some(kind) = pooling(self.model)? {
            extras.push(("pooling".to_owned(), kind.to_owned()));
        }
        let rows = self.model.tensor("token_embd.weight")?.shape.get(1).copied().unwrap_or(1);
        Ok(Program {
            vocabulary: u32::try_from(rows).map_err(|_| {
                Error::invalid_request(format!("token_embd.weight has {rows} rows"))
            })?,
            width: self.model.u32("{arch}.embedding_length")?,
            layers: self.layers(),
            context_native: self.model.u32("{arch}.context_length")?,
            states: parts.states,
            steps: parts.steps,
            result_value: result.0,
            extras,
        })
    }

    fn name(&self, stem: &str, part: &str) -> String {
        match self.layer {
            Some(layer) => format!("blk.{layer}.{stem}.{part}"),
            None => format!("{stem}.{part}"),
        }
    }

    /// The whole name of a tensor that must be there.
    pub(super) fn known(&self, stem: &str, part: &str) -> String {
        let name = self.name(stem, part);
        if let Err(error) = self.model.tensor(&name) {
            self.fail(error);
        }
        name
    }

    fn weight(&self, stem: &str) -> (String, Attribute) {
        tensor("weight", self.known(stem, "weight"))
    }

    pub(super) fn bias(&self, stem: &str) -> Option<(String, Attribute)> {
        let name = self.name(stem, "bias");
        self.model.find_tensor(&name).map(|_| tensor("bias", name))
    }

    pub(super) fn fail(&self, error: Error) {
        self.parts.borrow_mut().error.get_or_insert(error);
    }
}

/// How the file says a text becomes one vector, where it says so.
fn pooling(model: &Metadata) -> Result<Option<&'static str>> {
    match model.find_u32("{arch}.pooling_type")? {
        None | Some(0) => Ok(None),
        Some(1) => Ok(Some("mean")),
        Some(2) => Ok(Some("cls")),
        Some(3) => Ok(Some("last")),
        Some(other) => Err(Error::unsupported(format!(
            "{}.pooling_type {other}: known are 0 (none), 1 (mean), 2 (cls) and 3 (last)",
            model.architecture
        ))),
    }
}

pub(super) fn int(name: &str, number: u32) -> (String, Attribute) {
    (name.to_owned(), Attribute::Int(i64::from(number)))
}

pub(super) fn float(name: &str, number: f64) -> (String, Attribute) {
    (name.to_owned(), Attribute::Float(number))
}

fn flag(name: &str, flag: bool) -> (String, Attribute) {
    (name.to_owned(), Attribute::Flag(flag))
}

pub(super) fn text(name: &str, word: &str) -> (String, Attribute) {
    (name.to_owned(), Attribute::Text(word.to_owned()))
}

fn tensor(name: &str, tensor: String) -> (String, Attribute) {
    (name.to_owned(), Attribute::Tensor(tensor))
}

fn unless(with: &mut Attributes, name: &str, number: f64, usual: f64) {
    if number != usual {
        with.push(float(name, number));
    }
}

/// One line per state and step: what a family's golden tests compare.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "program vocabulary={} width={} layers={} context={} result=%{}",
            self.vocabulary, self.width, self.layers, self.context_native, self.result_value
        )?;
        for (name, value) in &self.extras {
            writeln!(f, "extra {name}={value}")?;
        }
        for state in &self.states {
            writeln!(f, "state {} layer={}{}", state.kind, state.layer, listed(&state.attributes))?;
        }
        for step in &self.steps {
            for value in &step.outputs {
                write!(f, "%{value} ")?;
            }
            write!(f, "= {}", step.op)?;
            for value in &step.inputs {
                write!(f, " %{value}")?;
            }
            writeln!(f, "{}", listed(&step.attributes))?;
        }
        Ok(())
    }
}

fn listed(attributes: &[(String, Attribute)]) -> String {
    let mut line = String::new();
    for (name, attribute) in attributes {
        let value = match attribute {
            Attribute::Int(number) => number.to_string(),
            Attribute::Float(number) => format!("{number:?}"),
            Attribute::Flag(flag) => flag.to_string(),
            Attribute::Text(text) | Attribute::Tensor(text) => text.clone(),
            Attribute::Ints(list) => format!("{list:?}"),
            Attribute::Floats(list) => format!("{list:?}"),
            Attribute::Texts(list) => format!("{list:?}"),
        };
        line.push_str(&format!(" {name}={value}"));
    }
    line
}
