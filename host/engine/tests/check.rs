//! The checker accepts every family's program and refuses each single fault, naming the place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{Steps, families, flag, float, int, tensor, text, tiny::Tiny};
use gristmill_core::{
    Code, Error,
    program::{Attribute, Metadata, Program, State, TensorInfo},
};
use gristmill_engine::program::check;
use gristmill_kernels::Quant;

type Case = (&'static str, fn(&mut Program, &mut Metadata), Code, &'static str);

/// The first step with this name.
fn step<'a>(program: &'a mut Program, op: &str) -> &'a mut gristmill_core::program::Step {
    program.steps.iter_mut().find(|step| step.op == op).unwrap()
}

fn set(program: &mut Program, op: &str, attribute: (String, Attribute)) {
    let step = step(program, op);
    step.attributes.retain(|(name, _)| *name != attribute.0);
    step.attributes.push(attribute);
}

fn unset(program: &mut Program, op: &str, name: &str) {
    step(program, op).attributes.retain(|(other, _)| other != name);
}

fn reshape(metadata: &mut Metadata, name: &str, to: &[u64]) {
    let tensor = metadata.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
    tensor.shape = to.to_vec();
}

const BAD: Code = Code::InvalidRequest;
const NEW: Code = Code::Unsupported;

/// One fault each; the words that its message must hold, separated by `|`.
const FAULTS: &[Case] = &[
    ("unknown op", |p, _| p.steps[1].op = "warp".into(), NEW, "step 1 (warp|`warp`"),
    (
        "unknown attribute",
        |p, _| set(p, "rms-norm", int("axis", 1)),
        NEW,
        "step 1 (rms-norm, layer 0)|`axis`|weight, eps, heads",
    ),
    (
        "attribute of another op",
        |p, _| set(p, "add", float("scale", 1.0)),
        NEW,
        "(add|`scale`|no attributes",
    ),
    (
        "attribute twice",
        |p, _| step(p, "linear").attributes.push(tensor("weight", "blk.0.attn_q.weight")),
        BAD,
        "`weight`|two",
    ),
    ("attribute missing", |p, _| unset(p, "rms-norm", "eps"), BAD, "`eps`|nothing"),
    (
        "tensor missing from attributes",
        |p, _| unset(p, "linear", "weight"),
        BAD,
        "`weight`|a tensor|nothing",
    ),
    ("float for int", |p, _| set(p, "rope", float("heads", 4.0)), BAD, "`heads`|an int|a float"),
    ("int for float", |p, _| set(p, "rms-norm", int("eps", 1)), BAD, "`eps`|a float|an int"),
    (
        "text for tensor",
        |p, _| set(p, "linear", text("weight", "blk.0.attn_q.weight")),
        BAD,
        "`weight`|a tensor|a text",
    ),
    ("int for flag", |p, _| set(p, "attention", int("causal", 1)), BAD, "`causal`|a flag"),
    (
        "flag for text",
        |p, _| set(p, "glu", flag("activation", true)),
        BAD,
        "`activation`|a text|a flag",
    ),
    ("eps of zero", |p, _| set(p, "rms-norm", float("eps", 0.0)), BAD, "`eps`|above 0"),
    (
        "eps not a number",
        |p, _| set(p, "rms-norm", float("eps", f64::NAN)),
        BAD,
        "`eps`|finite|NaN",
    ),
    (
        "infinite scale",
        |p, _| set(p, "attention", float("scale", f64::INFINITY)),
        BAD,
        "`scale`|finite|inf",
    ),
    (
        "negative heads",
        |p, _| set(p, "rope", ("heads".into(), Attribute::Int(-4))),
        BAD,
        "`heads`|-4",
    ),
    ("too many heads", |p, _| set(p, "rope", int("heads", 1 << 20)), BAD, "`heads`|1048576"),
    (
        "no such tensor",
        |p, _| set(p, "linear", tensor("weight", "blk.0.attn_x.weight")),
        BAD,
        "weight `blk.0.attn_x.weight`|none of this name",
    ),
    (
        "matrix of another width",
        |_, m| reshape(m, "blk.0.attn_q.weight", &[32, 64]),
        BAD,
        "step 2 (linear, layer 0)|`blk.0.attn_q.weight`|[64, 64]|[32, 64]",
    ),
    (
        "matrix of another height",
        |_, m| reshape(m, "blk.0.attn_q.weight", &[64, 32]),
        BAD,
        "step 2 (linear, layer 0)|bias `blk.0.attn_q.bias`|[32]|[64]",
    ),
    (
        "rope of another width",
        |p, _| set(p, "rope", int("head-dim", 8)),
        BAD,
        "(rope, layer 0)|heads · head-dim = 64|4 heads of 8",
    ),
    (
        "matrix of rank three",
        |_, m| reshape(m, "blk.0.attn_q.weight", &[64, 64, 2]),
        BAD,
        "`blk.0.attn_q.weight`|[64, 64, 2]",
    ),
    (
        "norm of another width",
        |_, m| reshape(m, "blk.1.attn_norm.weight", &[32]),
        BAD,
        "layer 1|`blk.1.attn_norm.weight`|[64]|[32]",
    ),
    (
        "bias of another width",
        |_, m| reshape(m, "blk.0.attn_k.bias", &[64]),
        BAD,
        "bias `blk.0.attn_k.bias`|[32]|[64]",
    ),
    (
        "embedding against the vocabulary",
        |p, _| p.vocabulary = 100,
        BAD,
        "step 0 (embed)|[64, 100]|[64, 200]",
    ),
    ("embedding against the width", |p, _| p.width = 32, BAD, "step 0 (embed)|[32, 200]"),
    (
        "unknown element type",
        |_, m| m.tensors[0].element = "Q9_Z".into(),
        NEW,
        "`token_embd.weight`|`Q9_Z`",
    ),
    (
        "rows of no whole blocks",
        |_, m| m.tensors[0].element = "Q4_K".into(),
        BAD,
        "`token_embd.weight`|blocks of 256|64",
    ),
    (
        "tensor twice in the file",
        |_, m| m.tensors.push(m.tensors[3].clone()),
        BAD,
        "`blk.0.attn_v.weight`|two",
    ),
    (
        "tensor nobody reads",
        |_, m| {
            m.tensors.push(TensorInfo {
                name: "rope_freqs.weight".into(),
                shape: vec![8],
                element: "F32".into(),
            })
        },
        BAD,
        "`rope_freqs.weight`|`unused`",
    ),
    (
        "tensor read and listed as unused",
        |p, _| p.extras.push(("unused".into(), "x output_norm.weight".into())),
        BAD,
        "`output_norm.weight`|unused",
    ),
    ("value read too early", |p, _| p.steps[1].inputs = vec![9], BAD, "step 1|input 9|none yet"),
    ("value that reads itself", |p, _| p.steps[1].inputs = vec![1], BAD, "step 1|input 1"),
    ("value written twice", |p, _| p.steps[2].outputs = vec![1], BAD, "step 2|outputs|[2]|[1]"),
    ("value written out of turn", |p, _| p.steps[2].outputs = vec![7], BAD, "step 2|[7]"),
    ("two outputs", |p, _| p.steps[2].outputs = vec![2, 3], BAD, "step 2|[2, 3]"),
    (
        "too few inputs",
        |p, _| {
            step(p, "add").inputs.pop();
        },
        BAD,
        "(add|2 values|found 1",
    ),
    ("too many inputs", |p, _| step(p, "glu").inputs.push(0), BAD, "(glu|2 values|found 3"),
    (
        "summands of different widths",
        |p, _| step(p, "add").inputs[1] = 4,
        BAD,
        "(add|input 4|width 64|32",
    ),
    (
        "value nobody reads",
        |p, _| step(p, "add").inputs = vec![0, 0],
        BAD,
        "(linear|value|a step that reads it",
    ),
    ("result is not the last", |p, _| p.result_value -= 1, BAD, "result-value"),
    (
        "result of the wrong kind",
        |p, _| {
            p.steps.pop();
            p.result_value -= 1;
        },
        BAD,
        "result|head or pool|rms-norm",
    ),
    (
        "step after the head",
        |p, _| {
            let n = p.steps.len() as u32;
            p.steps.push(gristmill_core::program::Step {
                op: "scale".into(),
                layer: None,
                inputs: vec![n - 1],
                outputs: vec![n],
                attributes: vec![float("factor", 2.0)],
            });
            p.result_value = n;
        },
        BAD,
        "reads a result",
    ),
    (
        "no state for a layer",
        |p, _| {
            p.states.pop();
        },
        BAD,
        "(attention, layer 2)|a kv state of layer 2",
    ),
    (
        "state nobody uses",
        |p, _| {
            p.layers = 4;
            p.states.push(State {
                kind: "kv".into(),
                layer: 3,
                attributes: vec![int("kv-heads", 2), int("head-dim", 16)],
            });
        },
        BAD,
        "state (kv, layer 3)|uses it",
    ),
    ("two states of a layer", |p, _| p.states[1].layer = 0, BAD, "state (kv, layer 0)|two"),
    (
        "state of an unknown kind",
        |p, _| p.states[0].kind = "paged".into(),
        NEW,
        "state (paged|`paged`|kv, conv or recurrent",
    ),
    (
        "state of other heads",
        |p, _| p.states[0].attributes[0] = int("kv-heads", 4),
        BAD,
        "(attention, layer 0)|kv-heads 2|kv-heads 4",
    ),
    (
        "state with a window of its own",
        |p, _| p.states[0].attributes.push(int("window", 5)),
        BAD,
        "window none|window 5",
    ),
    (
        "state with an unknown attribute",
        |p, _| p.states[0].attributes.push(int("pages", 5)),
        NEW,
        "state (kv, layer 0)|`pages`",
    ),
    ("state beyond the layers", |p, _| p.states[0].layer = 9, BAD, "state (kv, layer 9)|below 3"),
    ("step beyond the layers", |p, _| p.steps[3].layer = Some(9), BAD, "step 3|layer|below 3"),
    (
        "attention without a layer",
        |p, _| step(p, "attention").layer = None,
        BAD,
        "(attention)|layer",
    ),
    (
        "heads that do not divide",
        |p, _| set(p, "attention", int("kv-heads", 3)),
        BAD,
        "`kv-heads`|divisor of 4",
    ),
    (
        "attention of another width",
        |p, _| set(p, "attention", int("head-dim", 8)),
        BAD,
        "(attention|q: expected width 32, found 64",
    ),
    ("window of zero", |p, _| set(p, "attention", int("window", 0)), BAD, "`window`|found 0"),
    (
        "softcap below zero",
        |p, _| set(p, "attention", float("softcap", -1.0)),
        BAD,
        "`softcap`|above 0",
    ),
    (
        "looking ahead while generating",
        |p, _| set(p, "attention", flag("causal", false)),
        BAD,
        "(attention|`causal`",
    ),
    ("odd rope dims", |p, _| set(p, "rope", int("dims", 15)), BAD, "`dims`|even"),
    (
        "rope dims beyond the head",
        |p, _| set(p, "rope", int("dims", 32)),
        BAD,
        "`dims`|up to 16|32",
    ),
    (
        "unknown rope layout",
        |p, _| set(p, "rope", text("layout", "spiral")),
        NEW,
        "`layout`|`spiral`",
    ),
    (
        "unknown rope scaling",
        |p, _| set(p, "rope", text("scaling", "longrope")),
        NEW,
        "`scaling`|`longrope`",
    ),
    (
        "yarn without its context",
        |p, _| set(p, "rope", text("scaling", "yarn")),
        BAD,
        "`original-context`|nothing",
    ),
    (
        "yarn's numbers without yarn",
        |p, _| set(p, "rope", float("beta-fast", 32.0)),
        NEW,
        "`beta-fast`",
    ),
    (
        "a factor without scaling",
        |p, _| set(p, "rope", float("factor", 4.0)),
        BAD,
        "`factor`|1 without",
    ),
    ("rope base of zero", |p, _| set(p, "rope", float("base", 0.0)), BAD, "`base`|above 0"),
    (
        "unknown activation",
        |p, _| set(p, "glu", text("activation", "mish")),
        NEW,
        "`activation`|`mish`",
    ),
    (
        "norm of parts that do not divide",
        |p, _| set(p, "rms-norm", int("heads", 5)),
        BAD,
        "`heads`|divisor of 64|5",
    ),
    ("no vocabulary", |p, _| p.vocabulary = 0, BAD, "vocabulary|found 0"),
    ("vocabulary beyond all bounds", |p, _| p.vocabulary = u32::MAX, BAD, "vocabulary|4294967295"),
    ("layers beyond all bounds", |p, _| p.layers = 100_000, BAD, "layers|100000"),
    ("context beyond all bounds", |p, _| p.context_native = u32::MAX, BAD, "context-native"),
    ("no steps", |p, _| p.steps.clear(), BAD, "steps|found 0"),
    (
        "too many attributes",
        |p, _| {
            for i in 0..40 {
                step(p, "linear").attributes.push(int(&format!("a{i}"), 1));
            }
        },
        BAD,
        "attributes|at most 32",
    ),
    ("unknown extra", |p, _| p.extras.push(("sparkle".into(), "1".into())), NEW, "extra `sparkle`"),
    (
        "unknown pooling",
        |p, _| p.extras.push(("pooling".into(), "max".into())),
        NEW,
        "`pooling`|`max`",
    ),
];

#[test]
fn each_fault_is_refused_and_named() {
    assert!(FAULTS.len() >= 40);
    for (name, spoil, code, words) in FAULTS {
        let tiny = Tiny::family("qwen2", Quant::Q8_0);
        let mut metadata = tiny.metadata.clone();
        let mut program = families::program(&metadata).unwrap();
        spoil(&mut program, &mut metadata);
        let Err(fault) = check(&program, &metadata) else { panic!("{name}: accepted") };
        let error = Error::from(fault);
        assert_eq!(error.code, *code, "{name}: {error}");
        for word in words.split('|') {
            assert!(error.message.contains(word), "{name}: no {word:?} in {:?}", error.message);
        }
        assert!(error.detail("expected").is_some() && error.detail("found").is_some(), "{name}");
    }
}

#[test]
fn every_family_passes_and_keeps_its_numbers() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma2", "gemma3"] {
        let tiny = Tiny::family(architecture, Quant::Q4_0);
        let program = families::program(&tiny.metadata).unwrap();
        let checked =
            check(&program, &tiny.metadata).unwrap_or_else(|f| panic!("{architecture}: {f}"));
        assert_eq!(checked.steps.len(), program.steps.len());
        assert_eq!(checked.kv.len(), 3);
        let windows: Vec<_> = checked.kv.iter().map(|kv| kv.window).collect();
        let expected = match architecture {
            "gemma2" => [Some(5), None, Some(5)],
            "gemma3" => [Some(5); 3],
            _ => [None; 3],
        };
        assert_eq!(windows, expected, "{architecture}");
    }
}

#[test]
fn the_digest_names_the_program() {
    let tiny = Tiny::family("llama", Quant::Q4_0);
    let program = families::program(&tiny.metadata).unwrap();
    let digest = |program: &Program| check(program, &tiny.metadata).unwrap().digest;
    let first = digest(&program);
    assert!(first.starts_with("sha256:") && first.len() == 71, "{first}");
    assert_eq!(digest(&program), first);
    let mut other = program.clone();
    set(&mut other, "attention", float("scale", 0.5));
    assert_ne!(digest(&other), first);
}

#[test]
fn unused_tensors_can_be_listed_and_extras_read() {
    let mut tiny = Tiny::family("llama", Quant::Q4_0);
    tiny.tensor("rope_freqs.weight", &[8], Quant::F32, 1.0, 0.0);
    let mut program = families::program(&tiny.metadata).unwrap();
    program.extras = vec![
        ("unused".into(), "rope_freqs.weight absent.weight".into()),
        ("pooling".into(), "last".into()),
    ];
    let checked = check(&program, &tiny.metadata).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(checked.tensors.iter().all(|tensor| tensor.name != "rope_freqs.weight"));
    assert_eq!(checked.pooling, gristmill_engine::program::Pooling::Last);
}

/// The steps no generating family above uses: an encoder with a mixture, slices and all.
#[test]
fn the_rest_of_the_vocabulary_is_known() {
    let (tiny, program) = common::tiny::encoder();
    let checked = check(&program, &tiny.metadata).unwrap_or_else(|fault| panic!("{fault}"));
    let mut ops: Vec<&str> = checked.steps.iter().map(|step| step.op.name()).collect();
    ops.sort_unstable();
    ops.dedup();
    assert_eq!(
        ops,
        [
            "activation",
            "add",
            "attention",
            "embed",
            "layer-norm",
            "linear",
            "moe",
            "pool",
            "position-embed",
            "rms-norm",
            "rope",
            "scale",
            "segment-embed",
            "slice"
        ]
    );
    let spoilt: &[(&str, &str, (String, Attribute))] = &[
        ("slice", "columns", int("start", 150)),
        ("moe", "`active`", int("active", 9)),
        ("moe", "`scoring`", text("scoring", "dice")),
        ("pool", "`kind`", text("kind", "max")),
        ("activation", "`kind`", text("kind", "mish")),
        ("moe", "gate `moe.down`", tensor("gate", "moe.down")),
        ("attention", "`window`", int("window", 3)),
        ("position-embed", "a row for each", tensor("weight", "short")),
        ("segment-embed", "`moe.down`", tensor("weight", "moe.down")),
    ];
    for (op, word, attribute) in spoilt {
        let mut program = program.clone();
        set(&mut program, op, attribute.clone());
        let fault = check(&program, &tiny.metadata).expect_err(op).to_string();
        assert!(fault.contains(word), "{op}: no {word:?} in {fault}");
    }
}

/// `Steps` numbers values as programs must.
#[test]
fn an_empty_model_is_refused() {
    let mut p = Steps::new();
    p.op("embed", &[], vec![tensor("weight", "token_embd.weight")]);
    let tiny = Tiny::family("llama", Quant::F32);
    let fault = check(&p.program(200, 64, 1, 8), &tiny.metadata).unwrap_err();
    assert!(fault.to_string().contains("head or pool"), "{fault}");
}
