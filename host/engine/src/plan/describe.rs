//! A plan for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Capacity, Phase, Plan, Work};
use crate::{cache::KvTypes, program::TensorId};

impl Plan {
    /// The plan as text: one line a phase, and what it costs.
    #[must_use]
    pub fn describe(&self, types: KvTypes) -> String {
        let program = &self.program;
        let capacity = self.capacity(types);
        let mut out = String::new();
        let _ = writeln!(
            out,
            "program    {}\nlayers     {}, width {}, vocabulary {}, context {}\nsteps      {} in {} phases, {} buffers\nweights    {} bytes in {} tensors\ncache      {} bytes a token ({} keys, {} values)\nbuffers    {} bytes a row, {} a row with logits",
            program.digest,
            program.layers,
            program.width,
            program.vocabulary,
            program.context_native,
            program.steps.len(),
            self.phases.len(),
            self.slots.len(),
            capacity.weights,
            program.tensors.len(),
            capacity.kv_token,
            types.k.name(),
            types.v.name(),
            capacity.row,
            capacity.wanted,
        );
        let mut layer = None;
        for (index, phase) in self.phases.iter().enumerate() {
            if phase.layer != layer {
                layer = phase.layer;
                let name = layer.map_or_else(|| "around".to_owned(), |l| format!("layer {l}"));
                let _ = writeln!(out, "\n{name}");
            }
            let (name, detail) = self.say(phase);
            let _ = writeln!(out, "{index:5}  {name:<15}{detail}");
        }
        out
    }

    /// The plan as JSON.
    #[must_use]
    pub fn describe_json(&self, types: KvTypes) -> Value {
        let program = &self.program;
        let Capacity { weights, kv_token, kv_window, window_room, states, row, wanted } =
            self.capacity(types);
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|phase| {
                let (name, detail) = self.say(phase);
                json!({"phase": name, "layer": phase.layer, "steps": phase.steps, "detail": detail})
            })
            .collect();
        json!({
            "program": program.digest,
            "layers": program.layers,
            "width": program.width,
            "vocabulary": program.vocabulary,
            "context": program.context_native,
            "steps": program.steps.len(),
            "bytes": {
                "weights": weights,
                "cache_per_token": kv_token,
                "cache_per_token_in_windows": kv_window,
                "window_tokens": window_room,
                "recurrent_states": states,
                "buffers_per_row": row,
                "buffers_per_row_with_logits": wanted,
            },
            "buffers": self.slots,
            "phases": phases,
        })
    }

    fn tensor(&self, id: TensorId) -> String {
        self.program.tensors.get(id).map_or_else(String::new, |tensor| {
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            format!("{} {} {}", tensor.name, shape.join("×"), tensor.quant.name())
        })
    }

    fn optional(&self, id: Option<TensorId>) -> String {
        id.map_or_else(String::new, |id| format!(" · {}", self.tensor(id)))
    }

    fn say(&self, phase: &Phase) -> (&'static str, String) {
        match &phase.work {
            Work::Embed { weight, scale, out } => {
                ("embed", format!("{} · {scale} → b{out}", self.tensor(*weight)))
            }
            Work::PositionEmbed { weight, x, out } => {
                ("position-embed", format!("b{x} + {} → b{out}", self.tensor(*weight)))
            }
            Work::SegmentEmbed { weight, x, out } => {
                ("segment-embed", format!("b{x} + {} → b{out}", self.tensor(*weight)))
            }
            Work::RmsNorm { x, weight, heads, out, .. } => {
                let parts = if *heads > 1 { format!(" ({heads} heads)") } else { String::new() };
                ("rms-norm", format!("b{x}{}{parts} → b{out}", self.optional(*weight)))
            }
            Work::LayerNorm { x, weight, out, .. } => {
                ("layer-norm", format!("b{x} · {} → b{out}", self.tensor(*weight)))
            }
            Work::Linear { x, products, .. } => {
                let all: Vec<String> = products
                    .iter()
                    .map(|product| {
                        let to = if product.accumulate { "⇒ +" } else { "→ " };
                        format!("{} {to}b{}", self.tensor(product.weight), product.out)
                    })
                    .collect();
                ("linear", format!("b{x} · {}", all.join(", ")))
            }
            Work::GluLinear { x, gate, up, activation, out, .. } => {
                let (gate, up) = (self.tensor(*gate), self.tensor(*up));
                ("glu-linear", format!("b{x} · {gate}, {} · {up} → b{out}", activation.name()))
            }
            Work::Rope { x, rope, out, .. } => {
                ("rope", format!("b{x} {} heads, base {} → b{out}", rope.heads, rope.base))
            }
            Work::Attention { q, k, v, attention: a, out } => {
                let window = a.window.map_or_else(String::new, |w| format!(", window {w}"));
                let (heads, kv) = (a.heads, a.kv_heads);
                ("attention", format!("b{q} b{k} b{v} {heads}/{kv} heads{window} → b{out}"))
            }
            Work::Glu { gate, up, activation, out, .. } => {
                ("glu", format!("{} b{gate} · b{up} → b{out}", activation.name()))
            }
            Work::GluParts { gate, up, activation, out, .. } => {
                ("glu-parts", format!("{} b{gate} · b{up} → b{out}", activation.name()))
            }
            Work::Activation { x, kind, out, .. } => {
                ("activation", format!("{} b{x} → b{out}", kind.name()))
            }
            Work::Add { a, b, out, .. } => ("add", format!("b{a} + b{b} → b{out}")),
            Work::Scale { x, factor, out, .. } => ("scale", format!("b{x} · {factor} → b{out}")),
            Work::PositionScale { x, factor, length, out, .. } => {
                ("position-scale", format!("b{x} by {factor} every {length} tokens → b{out}"))
            }
            Work::Slice { x, start, length, heads, out, .. } => {
                let parts = if *heads > 1 { format!(" of {heads} heads") } else { String::new() };
                ("slice", format!("b{x} {start}..{}{parts} → b{out}", start + length))
            }
            Work::Concat { a, b, heads, out, .. } => {
                ("concat", format!("b{a}, b{b} in {heads} parts → b{out}"))
            }
            Work::HeadLinear { x, weight, out, .. } => {
                ("head-linear", format!("b{x} · {} → b{out}", self.tensor(*weight)))
            }
            Work::Conv { x, conv, out, .. } => {
                let weight = self.tensor(conv.weight);
                ("conv", format!("b{x} · {weight}, {} → b{out}", conv.activation.name()))
            }
            Work::DeltaRule { inputs: [q, k, v, decay, strength], rule, out } => {
                let (heads, keys) = (rule.heads, rule.key_heads);
                let inputs = format!("b{q} b{k} b{v} b{decay} b{strength}");
                ("delta-rule", format!("{inputs} {heads}/{keys} heads → b{out}"))
            }
            Work::Moe { x, moe, out, .. } => {
                ("moe", format!("b{x} {} of {} experts → b{out}", moe.active, moe.experts))
            }
            Work::Narrow { live } => {
                let all: Vec<String> = live.iter().map(|(slot, _)| format!("b{slot}")).collect();
                ("narrow", format!("{} to rows whose logits are wanted", all.join(", ")))
            }
            Work::Head { x, head, .. } => ("head", format!("b{x} · {}", self.tensor(head.weight))),
            Work::Pool { x, kind, .. } => ("pool", format!("{} of b{x}", kind.name())),
        }
    }
}
