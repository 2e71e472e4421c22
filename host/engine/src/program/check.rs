//! From a family's program and a file's tensor table to the checked form.

mod moe;
mod recurrent;
mod rope;
mod words;

use std::collections::HashMap;

use gristmill_core::program::{Metadata, Program};
use gristmill_core::program::{State as RawState, Step as RawStep};
use gristmill_kernels::Quant;
use sha2::{Digest, Sha256};

use super::{
    attributes::Attributes,
    fault::Fault,
    ir::{
        Activation, Attention, Checked, Head, Kv, Op, Pooling, Recurrent, Result as Kind, Step,
        Tensor, TensorId,
    },
    limits,
};

/// Checks a program against the tensors of its file.
///
/// # Errors
/// The first [`Fault`], in the order: limits, states, steps, result, what is left unused.
pub fn check(program: &Program, metadata: &Metadata) -> Result<Checked, Box<Fault>> {
    sizes(program, metadata)?;
    let (pooling, unused) = extras(program)?;
    let mut checker = Checker::new(program, metadata)?;
    for (index, step) in program.steps.iter().enumerate() {
        checker.step(index, step).map_err(|fault| fault.at(Some(index), &step.op, step.layer))?;
    }
    checker.finish(program, metadata, pooling, &unused)
}

/// The program's name for itself: `sha256:…` of its JSON form.
fn digest(program: &Program) -> Result<String, Box<Fault>> {
    let text = serde_json::to_vec(program)
        .map_err(|error| Fault::wrong("program", "numbers that JSON can spell", error))?;
    let mut name = "sha256:".to_owned();
    for byte in Sha256::digest(&text) {
        name.push_str(&format!("{byte:02x}"));
    }
    Ok(name)
}

fn sizes(program: &Program, metadata: &Metadata) -> Result<(), Box<Fault>> {
    let bounds = [
        ("vocabulary", u64::from(program.vocabulary), limits::VOCABULARY),
        ("width", u64::from(program.width), limits::WIDTH),
        ("layers", u64::from(program.layers), limits::LAYERS),
        ("context-native", u64::from(program.context_native), limits::CONTEXT),
        ("steps", program.steps.len() as u64, limits::STEPS as u64),
        ("tensors of the file", metadata.tensors.len() as u64, limits::TENSORS as u64),
    ];
    for (name, found, most) in bounds {
        if !(1..=most).contains(&found) {
            return Err(Fault::wrong(name, format!("1..={most}"), found));
        }
    }
    if program.extras.len() > limits::EXTRAS {
        let most = format!("at most {}", limits::EXTRAS);
        return Err(Fault::wrong("extras", most, program.extras.len()));
    }
    Ok(())
}

fn extras(program: &Program) -> Result<(Pooling, Vec<&str>), Box<Fault>> {
    let (mut kind, mut unused) = (Pooling::Mean, Vec::new());
    for (name, value) in &program.extras {
        match name.as_str() {
            "pooling" => kind = pooling("extra `pooling`", value)?,
            "unused" => unused.extend(value.split_whitespace()),
            _ => {
                let found = "an extra this host does not know";
                return Err(Fault::unknown(format!("extra `{name}`"), "pooling, unused", found));
            }
        }
    }
    Ok((kind, unused))
}

use words::{activation, pooling};

struct Checker<'a> {
    program: &'a Program,
    files: HashMap<&'a str, usize>,
    metadata: &'a Metadata,
    /// Which tensors of the file are read, and their ids.
    ids: HashMap<usize, TensorId>,
    tensors: Vec<(usize, Tensor)>,
    states: Vec<(Kv, bool)>,
    kv: Vec<Kv>,
    recurrent: Vec<(Recurrent, bool)>,
    steps: Vec<Step>,
    reads: Vec<usize>,
    hidden: Option<usize>,
    bidirectional: Option<usize>,
    /// The first step that can only go forward.
    causal_only: Option<usize>,
}

impl<'a> Checker<'a> {
    fn new(program: &'a Program, metadata: &'a Metadata) -> Result<Self, Box<Fault>> {
        let mut files = HashMap::with_capacity(metadata.tensors.len());
        for (index, tensor) in metadata.tensors.iter().enumerate() {
            if files.insert(tensor.name.as_str(), index).is_some() {
                return Err(Fault::wrong(format!("tensor `{}`", tensor.name), "one", "two"));
            }
        }
        let mut states: Vec<(Kv, bool)> = Vec::with_capacity(program.states.len());
        let mut recurrent: Vec<(Recurrent, bool)> = Vec::new();
        for state in &program.states {
            let at = |fault: Box<Fault>| fault.at(None, &state.kind, Some(state.layer));
            let twice = match read_state(state, program).map_err(at)? {
                State::Kv(kv) => {
                    let twice = states.iter().any(|(other, _)| other.layer == kv.layer);
                    states.push((kv, false));
                    twice
                }
                State::Recurrent(new) => {
                    let same = |other: &Recurrent| {
                        other.layer == new.layer && other.memory.kind() == new.memory.kind()
                    };
                    let twice = recurrent.iter().any(|(other, _)| same(other));
                    recurrent.push((new, false));
                    twice
                }
            };
            if twice {
                let expected = format!("one {} state", state.kind);
                return Err(at(Fault::wrong("layer", expected, "two")));
            }
        }
        Ok(Self {
            program,
            files,
            metadata,
            ids: HashMap::new(),
            tensors: Vec::new(),
            states,
            kv: Vec::new(),
            recurrent,
            steps: Vec::with_capacity(program.steps.len()),
            reads: vec![0; program.steps.len()],
            hidden: None,
            bidirectional: None,
            causal_only: None,
        })
    }

    fn width(&self, value: usize) -> usize {
        self.steps.get(value).map_or(0, |step| step.width)
    }

    fn is_result(&self, value: usize) -> bool {
        matches!(self.steps.get(value).map(|step| &step.op), Some(Op::Head(_) | Op::Pool { .. }))
    }

    fn step(&mut self, index: usize, raw: &RawStep) -> Result<(), Box<Fault>> {
        if raw.layer.is_some_and(|layer| layer >= self.program.layers) {
            let expected = format!("below {}", self.program.layers);
            return Err(Fault::wrong("layer", expected, raw.layer.unwrap_or_default()));
        }
        let arity = match raw.op.as_str() {
            "embed" => 0,
            "attention" => 3,
            "delta-rule" => 5,
            "glu" | "add" | "concat" => 2,
            "position-embed" | "segment-embed" | "rms-norm" | "layer-norm" | "linear"
            | "head-linear" | "rope" | "activation" | "scale" | "position-scale" | "slice"
            | "conv" | "moe" | "head" | "pool" => 1,
            other => {
                let known = "an op of docs/program.md";
                return Err(Fault::unknown("op", known, format!("`{other}`")));
            }
        };
        if raw.inputs.len() != arity {
            return Err(Fault::wrong("inputs", format!("{arity} values"), raw.inputs.len()));
        }
        let mut inputs = Vec::with_capacity(arity);
        for &value in &raw.inputs {
            let value = value as usize;
            if value >= index {
                let expected = "a value written by an earlier step";
                return Err(Fault::wrong(format!("input {value}"), expected, "none yet"));
            }
            if self.is_result(value) {
                let expected = "no step that reads a result";
                return Err(Fault::wrong(format!("input {value}"), expected, "one"));
            }
            if let Some(reads) = self.reads.get_mut(value) {
                *reads += 1;
            }
            inputs.push(value);
        }
        if raw.outputs.as_slice() != [u32::try_from(index).unwrap_or(u32::MAX)] {
            let expected = format!("[{index}], the next value");
            return Err(Fault::wrong("outputs", expected, format!("{:?}", raw.outputs)));
        }
        let mut attributes = Attributes::new(&raw.attributes)?;
        let (op, width) = self.operation(raw, &inputs, &mut attributes)?;
        attributes.finish()?;
        if width as u64 > limits::WIDTH.max(limits::VOCABULARY) {
            return Err(Fault::wrong("width", format!("at most {}", limits::WIDTH), width));
        }
        let layer = raw.layer.map(|layer| layer as usize);
        self.steps.push(Step { op, layer, inputs, width });
        Ok(())
    }

    fn operation(
        &mut self,
        raw: &RawStep,
        inputs: &[usize],
        a: &mut Attributes<'_>,
    ) -> Result<(Op, usize), Box<Fault>> {
        let input = |n: usize| inputs.get(n).copied().unwrap_or(usize::MAX);
        let x = self.width(input(0));
        let width = self.program.width as usize;
        let vocabulary = self.program.vocabulary as usize;
        Ok(match raw.op.as_str() {
            "embed" => {
                let weight = self.tensor("weight", a.tensor("weight")?, &[width, vocabulary])?;
                let scale = a.float_or("scale")?.unwrap_or(1.0) as f32;
                (Op::Embed { weight, scale }, width)
            }
            "position-embed" => {
                let name = a.tensor("weight")?;
                let positions = self.dimension(name, 1).unwrap_or(0);
                let weight = self.tensor("weight", name, &[x, positions])?;
                if positions < self.program.context_native as usize {
                    return Err(Fault::wrong(
                        format!("weight `{name}`"),
                        format!("a row for each of {} positions", self.program.context_native),
                        positions,
                    ));
                }
                (Op::PositionEmbed { weight }, x)
            }
            "segment-embed" => {
                let name = a.tensor("weight")?;
                let segments = self.dimension(name, 1).unwrap_or(0).max(1);
                (Op::SegmentEmbed { weight: self.tensor("weight", name, &[x, segments])? }, x)
            }
            "rms-norm" => {
                let weight = a.tensor_or("weight")?;
                let eps = a.positive("eps")? as f32;
                let heads = self.parts(x, a)?;
                let weight =
                    weight.map(|name| self.tensor("weight", name, &[x / heads])).transpose()?;
                (Op::RmsNorm { weight, eps, heads }, x)
            }
            "layer-norm" => {
                let weight = self.tensor("weight", a.tensor("weight")?, &[x])?;
                let bias = a.tensor_or("bias")?;
                let bias = bias.map(|name| self.tensor("bias", name, &[x])).transpose()?;
                (Op::LayerNorm { weight, bias, eps: a.positive("eps")? as f32 }, x)
            }
            "linear" => {
                let name = a.tensor("weight")?;
                let out = self.dimension(name, 1).unwrap_or(1);
                let weight = self.tensor("weight", name, &[x, out])?;
                let bias = a.tensor_or("bias")?;
                let bias = bias.map(|name| self.tensor("bias", name, &[out])).transpose()?;
                let scale = a.float_or("scale")?.unwrap_or(1.0) as f32;
                (Op::Linear { weight, bias, scale }, out)
            }
            "rope" => (Op::Rope(self.rope(x, a)?), x),
            "attention" => {
                let widths = [x, self.width(input(1)), self.width(input(2))];
                let attention = self.attention(raw, widths, a)?;
                let width = attention.heads * attention.head_dim;
                (Op::Attention(attention), width)
            }
            "glu" => {
                let up = self.width(input(1));
                if !up.is_multiple_of(x.max(1)) {
                    let expected = format!("a multiple of {x}, the width of the gate");
                    return Err(Fault::wrong(format!("input {}", input(1)), expected, up));
                }
                (Op::Glu(activation("activation", a.text("activation")?)?), up)
            }
            "activation" => match activation("kind", a.text("kind")?)? {
                Activation::SwigluOai => {
                    let expected = "a function of one value";
                    return Err(Fault::wrong("attribute `kind`", expected, "`swiglu-oai`"));
                }
                kind => (Op::Activation(kind), x),
            },
            "concat" => {
                let (heads, other) = (self.parts(x, a)?, self.width(input(1)));
                if !other.is_multiple_of(heads) {
                    let expected = format!("a multiple of {heads} heads");
                    return Err(Fault::wrong(format!("input {}", input(1)), expected, other));
                }
                (Op::Concat { heads }, x + other)
            }
            "head-linear" => {
                let heads = self.parts(x, a)?;
                let name = a.tensor("weight")?;
                let out = self.dimension(name, 1).unwrap_or(0);
                let weight = self.tensor("weight", name, &[x / heads, out, heads])?;
                (Op::HeadLinear { weight, heads }, out * heads)
            }
            "add" => {
                self.same(x, input(1))?;
                (Op::Add, x)
            }
            "scale" => (Op::Scale(a.float("factor")? as f32), x),
            "position-scale" => {
                let factor = a.positive("factor")? as f32;
                let length = a.count("length", limits::CONTEXT)?;
                (Op::PositionScale { factor, length }, x)
            }
            "slice" => {
                let start = a.offset("start", limits::WIDTH)?;
                let length = a.count("length", limits::WIDTH)?;
                let heads = self.parts(x, a)?;
                if start + length > x / heads {
                    let found = format!("{start}..{}", start + length);
                    return Err(Fault::wrong("columns", format!("within 0..{}", x / heads), found));
                }
                (Op::Slice { start, length, heads }, length * heads)
            }
            "conv" => (Op::Conv(self.conv(raw.layer, x, a)?), x),
            "delta-rule" => {
                let widths = [0, 1, 2, 3, 4].map(|n| self.width(input(n)));
                let rule = self.delta_rule(raw.layer, widths, a)?;
                let width = rule.heads * rule.value_dim;
                (Op::DeltaRule(rule), width)
            }
            "moe" => (Op::Moe(self.moe(x, a)?), x),
            "head" => {
                let weight = self.tensor("weight", a.tensor("weight")?, &[x, vocabulary])?;
                let bias = a.tensor_or("bias")?;
                let bias = bias.map(|name| self.tensor("bias", name, &[vocabulary])).transpose()?;
                let scale = a.float_or("scale")?.unwrap_or(1.0) as f32;
                let softcap = a.positive_or("softcap")?.map(|cap| cap as f32);
                self.hidden = Some(input(0));
                (Op::Head(Head { weight, bias, scale, softcap }), vocabulary)
            }
            _ => {
                let kind = pooling("attribute `kind`", a.text("kind")?)?;
                self.hidden = Some(input(0));
                (Op::Pool { kind, normalize: a.flag("normalize")? }, x)
            }
        })
    }

    /// The attribute `heads`: equal parts of a row, one if it is silent.
    fn parts(&self, width: usize, a: &mut Attributes<'_>) -> Result<usize, Box<Fault>> {
        let heads = a.count_or("heads", limits::HEADS)?.unwrap_or(1);
        if width.is_multiple_of(heads) {
            return Ok(heads);
        }
        Err(Fault::wrong("attribute `heads`", format!("a divisor of {width}"), heads))
    }

    fn same(&self, width: usize, other: usize) -> Result<(), Box<Fault>> {
        let found = self.width(other);
        if found == width {
            return Ok(());
        }
        Err(Fault::wrong(format!("input {other}"), format!("width {width}"), found))
    }

    fn attention(
        &mut self,
        raw: &RawStep,
        [q, k, v]: [usize; 3],
        a: &mut Attributes<'_>,
    ) -> Result<Attention, Box<Fault>> {
        let heads = a.count("heads", limits::HEADS)?;
        let kv_heads = a.count("kv-heads", limits::HEADS)?;
        let head_dim = a.count("head-dim", limits::HEAD_DIM)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of {heads} heads");
            return Err(Fault::wrong("attribute `kv-heads`", expected, kv_heads));
        }
        for (name, found, wanted) in [
            ("q", q, heads * head_dim),
            ("k", k, kv_heads * head_dim),
            ("v", v, kv_heads * head_dim),
        ] {
            if found != wanted {
                return Err(Fault::wrong(name, format!("width {wanted}"), found));
            }
        }
        let scale = a.float("scale")? as f32;
        let causal = a.flag_or("causal", true)?;
        let window = a.count_or("window", limits::CONTEXT)?;
        let softcap = a.positive_or("softcap")?.map(|cap| cap as f32);
        let sinks = a.tensor_or("sinks")?;
        let sinks = sinks.map(|name| self.tensor("sinks", name, &[heads])).transpose()?;
        if !causal && window.is_some() {
            let expected = "no window without `causal`";
            return Err(Fault::unknown("attribute `window`", expected, "both"));
        }
        let Some(layer) = raw.layer else {
            return Err(Fault::wrong("layer", "the layer whose state is used", "none"));
        };
        let Some((state, used)) =
            self.states.iter_mut().find(|(state, _)| state.layer == layer as usize)
        else {
            return Err(Fault::wrong("state", format!("a kv state of layer {layer}"), "none"));
        };
        if *used {
            let expected = format!("one attention step for the kv state of layer {layer}");
            return Err(Fault::wrong("state", expected, "two"));
        }
        *used = true;
        let wanted = Kv { layer: layer as usize, kv_heads, head_dim, window };
        if *state != wanted {
            let say = |kv: &Kv| {
                let window = kv.window.map_or_else(|| "none".to_owned(), |w| w.to_string());
                format!("kv-heads {}, head-dim {}, window {window}", kv.kv_heads, kv.head_dim)
            };
            return Err(Fault::wrong("state", say(&wanted), say(state)));
        }
        if !causal {
            self.bidirectional.get_or_insert(self.steps.len());
        }
        self.kv.push(wanted);
        let state = self.kv.len() - 1;
        Ok(Attention { state, heads, kv_heads, head_dim, scale, causal, window, softcap, sinks })
    }

    fn dimension(&self, name: &str, n: usize) -> Option<usize> {
        let index = self.files.get(name)?;
        let size = self.metadata.tensors.get(*index)?.shape.get(n)?;
        usize::try_from(*size).ok()
    }

    /// The tensor of this name, if it has this shape. Trailing dimensions of one may be there or not.
    fn tensor(&mut self, role: &str, name: &str, shape: &[usize]) -> Result<TensorId, Box<Fault>> {
        let subject = || format!("{role} `{name}`");
        let Some((&index, info)) = self
            .files
            .get(name)
            .and_then(|index| Some((index, self.metadata.tensors.get(*index)?)))
        else {
            return Err(Fault::wrong(subject(), "a tensor of the file", "none of this name"));
        };
        let mut found = info.shape.as_slice();
        while let [rest @ .., 1] = found {
            if rest.len() < shape.len() {
                break;
            }
            found = rest;
        }
        let equal = found.len() <= shape.len()
            && found.iter().zip(shape).all(|(&a, &b)| a == b as u64 && a > 0)
            && shape.iter().skip(found.len()).all(|&b| b == 1);
        if !equal {
            return Err(Fault::wrong(
                subject(),
                format!("shape {shape:?}"),
                format!("shape {:?}", info.shape),
            ));
        }
        let Some(quant) = Quant::from_name(&info.element) else {
            let expected = "an element type this host decodes";
            return Err(Fault::unknown(subject(), expected, format!("`{}`", info.element)));
        };
        let cols = shape.first().copied().unwrap_or(0);
        if !cols.is_multiple_of(quant.block_len()) {
            let expected =
                format!("rows of whole {} blocks of {}", quant.name(), quant.block_len());
            return Err(Fault::wrong(subject(), expected, format!("rows of {cols}")));
        }
        Ok(*self.ids.entry(index).or_insert_with(|| {
            let tensor = Tensor { name: name.to_owned(), shape: shape.to_vec(), quant };
            self.tensors.push((index, tensor));
            self.tensors.len() - 1
        }))
    }

    fn finish(
        self,
        program: &Program,
        metadata: &Metadata,
        pooling: Pooling,
        unused: &[&str],
    ) -> Result<Checked, Box<Fault>> {
        let last = self.steps.len() - 1;
        let result = match self.steps.last().map(|step| &step.op) {
            Some(Op::Head(_)) => Kind::Logits,
            Some(Op::Pool { .. }) => Kind::Pooled,
            _ => {
                let found = self.steps.last().map_or("nothing", |step| step.op.name());
                return Err(Fault::wrong("result", "head or pool as the last step", found));
            }
        };
        if program.result_value as usize != last {
            let expected = format!("{last}, the value of the last step");
            return Err(Fault::wrong("result-value", expected, program.result_value));
        }
        if let Some(value) = self.reads.iter().take(last).position(|&reads| reads == 0) {
            let op = self.steps.get(value).map_or("", |step| step.op.name());
            let fault = Fault::wrong(format!("value {value}"), "a step that reads it", "none");
            return Err(fault.at(Some(value), op, None));
        }
        if let (Kind::Logits, Some(step)) = (result, self.bidirectional) {
            let expected = "`causal` in a program that generates";
            let fault = Fault::wrong("attribute `causal`", expected, "false");
            return Err(fault.at(Some(step), "attention", None));
        }
        if let (Kind::Pooled, Some(step)) = (result, self.causal_only) {
            let expected = "a program that generates";
            let fault = Fault::unknown("recurrence", expected, "one that ends in `pool`");
            let op = self.steps.get(step).map_or("", |step| step.op.name());
            return Err(fault.at(Some(step), op, None));
        }
        if let Some((state, _)) = self.recurrent.iter().find(|(_, used)| !used) {
            let fault = Fault::wrong("state", "a step that uses it", "none");
            let layer = u32::try_from(state.layer).ok();
            return Err(fault.at(None, state.memory.kind(), layer));
        }
        if let Some((state, _)) = self.states.iter().find(|(_, used)| !used) {
            let fault = Fault::wrong("state", "an attention step that uses it", "none");
            return Err(fault.at(None, "kv", u32::try_from(state.layer).ok()));
        }
        for (index, tensor) in metadata.tensors.iter().enumerate() {
            let listed = unused.contains(&tensor.name.as_str());
            let subject = || format!("tensor `{}`", tensor.name);
            match (self.ids.contains_key(&index), listed) {
                (false, false) => {
                    let expected = "a step that reads it, or its name in the extra `unused`";
                    return Err(Fault::wrong(subject(), expected, "neither"));
                }
                (true, true) => {
                    let expected = "no step that reads it: it is listed as unused";
                    return Err(Fault::wrong(subject(), expected, "one"));
                }
                _ => {}
            }
        }
        Ok(Checked {
            vocabulary: program.vocabulary as usize,
            width: program.width as usize,
            layers: program.layers as usize,
            context_native: program.context_native as usize,
            tensors: self.tensors.into_iter().map(|(_, tensor)| tensor).collect(),
            kv: self.kv,
            recurrent: self.recurrent.into_iter().map(|(state, _)| state).collect(),
            steps: self.steps,
            result,
            hidden: self.hidden.unwrap_or(0),
            pooling,
            digest: digest(program)?,
        })
    }
}

/// A state as it was read.
enum State {
    Kv(Kv),
    Recurrent(Recurrent),
}

fn read_state(state: &RawState, program: &Program) -> Result<State, Box<Fault>> {
    if !matches!(state.kind.as_str(), "kv" | "conv" | "recurrent") {
        let expected = "kv, conv or recurrent";
        return Err(Fault::unknown("kind", expected, format!("`{}`", state.kind)));
    }
    if state.layer >= program.layers {
        return Err(Fault::wrong("layer", format!("below {}", program.layers), state.layer));
    }
    if state.kind != "kv" {
        return recurrent::read(state, state.layer as usize).map(State::Recurrent);
    }
    let mut a = Attributes::new(&state.attributes)?;
    let kv = Kv {
        layer: state.layer as usize,
        kv_heads: a.count("kv-heads", limits::HEADS)?,
        head_dim: a.count("head-dim", limits::HEAD_DIM)?,
        window: a.count_or("window", limits::CONTEXT)?,
    };
    a.finish()?;
    Ok(State::Kv(kv))
}
