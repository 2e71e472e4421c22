//! Steps beyond the first families': recurrence, latent attention, mixtures with every attribute. The
//! fast path computes what the reference computes in any cut, and each single fault is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::Arc;

use common::{Steps, flag, float, int, ready::distance, tensor, text, tiny::Tiny};
use gristmill_core::{
    Code, Error,
    program::{Attribute, Program},
};
use gristmill_engine::{
    cache::{Cache, KvTypes},
    execute::{Arena, Model, Row, Want},
    plan::Plan,
    program::check,
    reference::reference_logits,
    weights::Weights,
};
use gristmill_kernels::{Pool, Quant};

const F32: KvTypes = KvTypes { k: Quant::F32, v: Quant::F32 };
const WIDTH: usize = 64;
const VOCABULARY: usize = 200;
const EXPERTS: usize = 6;

/// Three layers: a convolution with a delta rule, latent attention, a mixture.
fn model(quant: Quant) -> (Tiny, Program) {
    let mut tiny = Tiny::new("steps");
    let mut p = Steps::new();
    tiny.tensor("embed", &[WIDTH, VOCABULARY], quant, 0.0, 1.0);
    let mut matrix = |name: &str, shape: &[usize]| {
        tiny.tensor(name, shape, quant, 0.0, 2.0 / (shape[0] as f32).sqrt());
    };
    for (name, shape) in [
        ("mixed", &[WIDTH, 160][..]),
        ("forget", &[WIDTH, 4]),
        ("write", &[WIDTH, 4]),
        ("back", &[WIDTH, WIDTH]),
        ("query", &[WIDTH, 160]),
        ("latent", &[WIDTH, 40]),
        ("into", &[32, 32, 4]),
        ("outof", &[32, 16, 4]),
        ("out", &[64, WIDTH]),
        ("router", &[WIDTH, EXPERTS]),
        ("gates", &[WIDTH, 32, EXPERTS]),
        ("ups", &[WIDTH, 32, EXPERTS]),
        ("downs", &[32, WIDTH, EXPERTS]),
        ("shared.gate", &[WIDTH]),
        ("head", &[WIDTH, VOCABULARY]),
    ] {
        matrix(name, shape);
    }
    for (name, shape, around) in [
        ("kernel", &[4, 160][..], 0.0),
        ("kernel.bias", &[160], 0.0),
        ("rate", &[4], -0.5),
        ("rate.bias", &[4], 0.0),
        ("router.bias", &[EXPERTS], 0.0),
        ("choice", &[EXPERTS], 0.0),
        ("gates.bias", &[32, EXPERTS], 0.0),
        ("ups.bias", &[32, EXPERTS], 0.0),
        ("downs.bias", &[WIDTH, EXPERTS], 0.0),
        ("short", &[4], 1.5),
        ("long", &[4], 4.0),
    ] {
        tiny.tensor(name, shape, Quant::F32, around, 0.4);
    }
    let norm = |p: &mut Steps, x: u32| p.op("rms-norm", &[x], vec![float("eps", 1e-5)]);
    let linear =
        |p: &mut Steps, x: u32, name: &str| p.op("linear", &[x], vec![tensor("weight", name)]);
    let slice = |p: &mut Steps, x: u32, start: usize, length: usize, heads: usize| {
        p.op("slice", &[x], vec![int("start", start), int("length", length), int("heads", heads)])
    };
    let state = |p: &mut Steps, kind: &str, attributes: Vec<(String, Attribute)>| {
        p.kv(attributes);
        p.states.last_mut().unwrap().kind = kind.into();
    };

    let mut x = p.op("embed", &[], vec![tensor("weight", "embed")]);
    p.layer = Some(0);
    let h = norm(&mut p, x);
    let mixed = linear(&mut p, h, "mixed");
    state(&mut p, "conv", vec![int("width", 160), int("kernel", 4)]);
    let seen = p.op(
        "conv",
        &[mixed],
        vec![tensor("weight", "kernel"), tensor("bias", "kernel.bias"), text("activation", "silu")],
    );
    let (q, k, v) = (
        slice(&mut p, seen, 0, 48, 1),
        slice(&mut p, seen, 48, 48, 1),
        slice(&mut p, seen, 96, 64, 1),
    );
    let q = p.op("rms-norm", &[q], vec![float("eps", 1e-5), int("heads", 2)]);
    let k = p.op("rms-norm", &[k], vec![float("eps", 1e-5), int("heads", 2)]);
    let k = p.op("scale", &[k], vec![float("factor", 0.2)]);
    let (forget, write) = (linear(&mut p, h, "forget"), linear(&mut p, h, "write"));
    let sizes = vec![int("heads", 4), int("key-dim", 24), int("value-dim", 16)];
    state(&mut p, "recurrent", sizes.clone());
    let rule = [
        sizes,
        vec![
            int("key-heads", 2),
            tensor("rate", "rate"),
            tensor("bias", "rate.bias"),
            float("scale", 0.2),
            text("sharing", "turns"),
        ],
    ]
    .concat();
    let found = p.op("delta-rule", &[q, k, v, forget, write], rule);
    let found = linear(&mut p, found, "back");
    x = p.op("add", &[x, found], vec![]);

    p.layer = Some(1);
    let h = norm(&mut p, x);
    let q = linear(&mut p, h, "query");
    let plain = slice(&mut p, q, 0, 32, 4);
    let inner = p.op("head-linear", &[plain], vec![tensor("weight", "into"), int("heads", 4)]);
    let turn = |p: &mut Steps, x: u32, heads: usize, dim: usize, offset: usize| {
        p.op(
            "rope",
            &[x],
            vec![
                int("heads", heads),
                int("head-dim", dim),
                int("offset", offset),
                int("dims", 8),
                text("layout", "interleaved"),
                float("base", 100.0),
                float("attention-factor", 1.1),
                tensor("factors", "short"),
                tensor("long-factors", "long"),
                int("original-context", 512),
            ],
        )
    };
    let turned = slice(&mut p, q, 32, 8, 4);
    let q = p.op("concat", &[inner, turned], vec![int("heads", 4)]);
    let q = turn(&mut p, q, 4, 40, 32);
    let q = p.op("position-scale", &[q], vec![float("factor", 0.3), int("length", 7)]);
    let both = linear(&mut p, h, "latent");
    let kv = turn(&mut p, both, 1, 40, 32);
    p.kv(vec![int("kv-heads", 1), int("head-dim", 40)]);
    let found = p.op(
        "attention",
        &[q, kv, kv],
        vec![int("heads", 4), int("kv-heads", 1), int("head-dim", 40), float("scale", 0.2)],
    );
    let found = slice(&mut p, found, 0, 32, 4);
    let found = p.op("head-linear", &[found], vec![tensor("weight", "outof"), int("heads", 4)]);
    let found = linear(&mut p, found, "out");
    x = p.op("add", &[x, found], vec![]);

    p.layer = Some(2);
    let h = norm(&mut p, x);
    let chosen = p.op(
        "moe",
        &[h],
        vec![
            tensor("router", "router"),
            tensor("router-bias", "router.bias"),
            tensor("selection-bias", "choice"),
            tensor("gate", "gates"),
            tensor("gate-bias", "gates.bias"),
            tensor("up", "ups"),
            tensor("up-bias", "ups.bias"),
            tensor("down", "downs"),
            tensor("down-bias", "downs.bias"),
            int("experts", EXPERTS),
            int("active", 2),
            int("groups", 3),
            int("active-groups", 2),
            text("activation", "swiglu-oai"),
            text("scoring", "sigmoid"),
            flag("normalize", true),
            float("scale", 1.5),
        ],
    );
    let gate = linear(&mut p, h, "shared.gate");
    let gated = p.op("glu", &[gate, chosen], vec![text("activation", "sigmoid")]);
    x = p.op("add", &[x, gated], vec![]);
    p.layer = None;
    let h = norm(&mut p, x);
    p.op("head", &[h], vec![tensor("weight", "head")]);
    let program = p.program(VOCABULARY as u32, WIDTH as u32, 3, 1024);
    (tiny, program)
}

struct Ready {
    plan: Plan,
    weights: Weights,
    tiny: Tiny,
}

fn ready(quant: Quant) -> Ready {
    let (tiny, program) = model(quant);
    let checked = check(&program, &tiny.metadata).unwrap_or_else(|fault| panic!("{fault}"));
    let plan = Plan::new(Arc::new(checked));
    let weights = Weights::load(&plan, &tiny, true).unwrap();
    Ready { plan, weights, tiny }
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 11) % VOCABULARY as u32).collect()
}

impl Ready {
    /// Reads tokens behind what a cache holds; logits after the last.
    fn feed(&self, threads: usize, cache: &mut Cache, tokens: &[u32]) -> Vec<f32> {
        let pool = Pool::new(threads, false);
        let model = Model { plan: &self.plan, weights: &self.weights, pool: &pool };
        let mut arena = Arena::new(&self.plan, tokens.len(), 1);
        let first = cache.len();
        let rows: Vec<Row> = tokens
            .iter()
            .enumerate()
            .map(|(i, &token)| Row {
                cache: 0,
                position: first + i,
                token,
                wanted: i + 1 == tokens.len(),
                bulk: false,
            })
            .collect();
        model.run(&mut arena, &rows, &mut [cache], Want::Result).unwrap();
        arena.logits(0).values().to_vec()
    }

    fn expected(&self, tokens: &[u32]) -> Vec<f32> {
        let all = reference_logits(&self.plan.program, &self.tiny, tokens).unwrap();
        all[all.len() - VOCABULARY..].to_vec()
    }

    fn cache(&self) -> Cache {
        Cache::new(&self.plan, F32, 256).unwrap()
    }
}

#[test]
fn the_fast_path_agrees_with_the_reference_in_any_cut() {
    let ready = ready(Quant::F32);
    let text = tokens(40);
    let expected = ready.expected(&text);
    for cuts in [&[40][..], &[1, 39], &[17, 1, 1, 21], &[1; 40]] {
        let mut cache = ready.cache();
        let mut done = 0;
        let mut found = Vec::new();
        for &cut in cuts {
            found = ready.feed(2, &mut cache, &text[done..done + cut]);
            done += cut;
        }
        let error = distance(&found, &expected);
        assert!(error < 2e-5, "{cuts:?}: {error:.2e}");
    }
}

#[test]
fn threads_change_nothing() {
    let ready = ready(Quant::Q8_0);
    let text = tokens(30);
    for cut in [1, 30] {
        let alone = ready.feed(1, &mut ready.cache(), &text[..cut]);
        for threads in [2, 3, 5] {
            assert_eq!(ready.feed(threads, &mut ready.cache(), &text[..cut]), alone, "{threads}");
        }
    }
}

#[test]
fn sequences_in_one_pass_are_computed_as_alone() {
    let ready = ready(Quant::F32);
    let pool = Pool::new(2, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let texts = [tokens(9), tokens(23)[4..].to_vec()];
    let mut caches = [ready.cache(), ready.cache()];
    let mut arena = Arena::new(&ready.plan, 64, 2);
    let rows: Vec<Row> = texts
        .iter()
        .enumerate()
        .flat_map(|(cache, text)| {
            text.iter().enumerate().map(move |(position, &token)| Row {
                cache,
                position,
                token,
                wanted: position + 1 == text.len(),
                bulk: false,
            })
        })
        .collect();
    let mut borrowed: Vec<&mut Cache> = caches.iter_mut().collect();
    model.run(&mut arena, &rows, &mut borrowed, Want::Result).unwrap();
    for (n, text) in texts.iter().enumerate() {
        let error = distance(arena.logits(n).values(), &ready.expected(text));
        assert!(error < 2e-5, "{error:.2e}");
    }
}

#[test]
fn a_recurrent_state_goes_back_to_what_was_kept_and_no_further() {
    let ready = ready(Quant::F32);
    let text = tokens(40);
    let mut cache = ready.cache();
    ready.feed(1, &mut cache, &text[..10]);
    ready.feed(1, &mut cache, &text[10..20]);
    for token in &text[20..25] {
        ready.feed(1, &mut cache, std::slice::from_ref(token));
    }
    // Another end after 22: the state behind the last pass of several rows is the nearest.
    let other = [&text[..22], &tokens(7)[..5]].concat();
    assert_eq!(
        (cache.common(&text[..25]), cache.common(&other), cache.common(&text[..14])),
        (25, 20, 10)
    );
    let fork = cache.copy(22, 256).unwrap();
    assert_eq!((fork.len(), cache.len()), (20, 25));
    for mut cut in [fork, {
        cache.truncate(22);
        cache
    }] {
        assert_eq!(cut.tokens(), &text[..20]);
        let found = ready.feed(1, &mut cut, &other[20..]);
        let error = distance(&found, &ready.expected(&other));
        assert!(error < 2e-5, "{error:.2e}");
    }
}

#[test]
fn what_nothing_was_kept_for_begins_anew() {
    let ready = ready(Quant::F32);
    let text = tokens(30);
    let mut cache = ready.cache();
    ready.feed(1, &mut cache, &text[..20]);
    cache.truncate(7);
    assert!(cache.is_empty());
    let found = ready.feed(1, &mut cache, &text);
    assert!(distance(&found, &ready.expected(&text)) < 2e-5);
}

#[test]
fn an_abandoned_pass_leaves_a_state_that_can_go_on() {
    let ready = ready(Quant::F32);
    let text = tokens(30);
    let pool = Pool::new(1, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let mut arena = Arena::new(&ready.plan, 16, 1);
    let mut cache = ready.cache();
    ready.feed(1, &mut cache, &text[..12]);
    let rows: Vec<Row> = (12..20)
        .map(|position| Row {
            cache: 0,
            position,
            token: text[position],
            wanted: position == 19,
            bulk: false,
        })
        .collect();
    let asked = std::cell::Cell::new(0);
    let abandoned = || {
        asked.set(asked.get() + 1);
        // Behind the convolution and the delta rule.
        asked.get() > 14
    };
    let error = model
        .run_unless(&mut arena, &rows, &mut [&mut cache], Want::Result, &abandoned)
        .unwrap_err();
    assert_eq!(error.code, Code::Cancelled);
    let kept = cache.len();
    assert_eq!(cache.tokens(), &text[..kept]);
    let found = ready.feed(1, &mut cache, &text[kept..]);
    assert!(distance(&found, &ready.expected(&text)) < 2e-5);
}

#[test]
fn costs_are_what_is_allocated() {
    let ready = ready(Quant::F32);
    let capacity = ready.plan.capacity(F32);
    assert_eq!(ready.cache().memory(), capacity.cache(256));
    assert_eq!(capacity.states, (3 * 160 + 4 * 24 * 16) * 4 * 3);
    let arena = Arena::new(&ready.plan, 8, 2);
    assert_eq!(arena.memory(), capacity.row * 8 + capacity.wanted * 2);
}

#[test]
fn a_long_context_turns_by_other_factors() {
    let (tiny, program) = model(Quant::F32);
    let text = tokens(20);
    let run = |context: usize| {
        let checked = check(&program, &tiny.metadata).unwrap();
        let plan = Plan::new(Arc::new(checked)).for_context(context);
        let weights = Weights::load(&plan, &tiny, true).unwrap();
        let long = plan.turns_long();
        let (tiny, _) = model(Quant::F32);
        let ready = Ready { plan, weights, tiny };
        (long, ready.feed(1, &mut ready.cache(), &text))
    };
    let ((long, far), (short, near)) = (run(1024), run(512));
    assert!(long && !short);
    assert!(distance(&near, &far) > 1e-3);
}

type Spoil = fn(&mut Program);

fn set(program: &mut Program, op: &str, attribute: (String, Attribute)) {
    let step = program.steps.iter_mut().find(|step| step.op == op).unwrap();
    step.attributes.retain(|(name, _)| *name != attribute.0);
    step.attributes.push(attribute);
}

const BAD: Code = Code::InvalidRequest;
const NEW: Code = Code::Unsupported;

/// One fault each; the words that its message must hold, separated by `|`.
const FAULTS: &[(&str, Spoil, Code, &str)] = &[
    (
        "groups that do not divide",
        |p| set(p, "moe", int("groups", 4)),
        BAD,
        "`groups`|divisor of 6",
    ),
    ("groups too small", |p| set(p, "moe", int("active", 5)), BAD, "`active-groups`|5 experts"),
    (
        "more groups than there are",
        |p| set(p, "moe", int("active-groups", 4)),
        BAD,
        "`active-groups`",
    ),
    ("unknown scoring", |p| set(p, "moe", text("scoring", "dice")), NEW, "`scoring`|`dice`"),
    (
        "bias of other experts",
        |p| set(p, "moe", tensor("up-bias", "choice")),
        BAD,
        "up-bias `choice`",
    ),
    ("a kernel of another width", |p| set(p, "conv", tensor("weight", "short")), BAD, "`short`"),
    (
        "a state of another kernel",
        |p| p.states[0].attributes[1] = int("kernel", 3),
        BAD,
        "state|kernel 4|kernel 3",
    ),
    ("no conv state", |p| p.states[0].layer = 1, BAD, "(conv, layer 0)|a conv state of layer 0"),
    ("no recurrent state", |p| p.states[1].layer = 2, BAD, "(delta-rule, layer 0)|recurrent state"),
    ("a state twice", |p| p.states[1] = p.states[0].clone(), BAD, "one conv state"),
    ("heads that share no keys", |p| set(p, "delta-rule", int("key-heads", 3)), BAD, "`key-heads`"),
    ("keys of another width", |p| set(p, "delta-rule", int("key-dim", 12)), BAD, "q|width 24|48"),
    ("unknown sharing", |p| set(p, "delta-rule", text("sharing", "lots")), NEW, "`sharing`|`lots`"),
    (
        "a state beyond all bounds",
        |p| p.states[1].attributes[0] = int("heads", 1024),
        BAD,
        "(delta-rule, layer 0)|heads 4|heads 1024",
    ),
    ("concat of other parts", |p| set(p, "concat", int("heads", 3)), BAD, "`heads`|divisor of 128"),
    (
        "head-linear of other parts",
        |p| set(p, "head-linear", int("heads", 2)),
        BAD,
        "`into`|[64, 32, 2]",
    ),
    (
        "a stretch of nothing",
        |p| set(p, "position-scale", int("length", 0)),
        BAD,
        "`length`|found 0",
    ),
    ("slice beyond a part", |p| set(p, "slice", int("length", 161)), BAD, "columns|0..161"),
    ("rope beyond the head", |p| set(p, "rope", int("offset", 34)), BAD, "`dims`|up to 6"),
    (
        "long factors without a context",
        |p| {
            let step = p.steps.iter_mut().find(|step| step.op == "rope").unwrap();
            step.attributes.retain(|(name, _)| name != "original-context");
        },
        BAD,
        "`original-context`|nothing",
    ),
    (
        "a context without long factors",
        |p| {
            let step = p.steps.iter_mut().find(|step| step.op == "rope").unwrap();
            step.attributes.retain(|(name, _)| name != "long-factors");
        },
        BAD,
        "`original-context`|nothing without",
    ),
    (
        "a gate that is no divisor",
        |p| {
            let glu = p.steps.iter_mut().find(|step| step.op == "glu").unwrap();
            glu.inputs.swap(0, 1);
        },
        BAD,
        "(glu, layer 2)|a multiple of 64|found 1",
    ),
    (
        "a function of two values alone",
        |p| {
            let step = p.steps.iter_mut().find(|step| step.op == "scale").unwrap();
            step.op = "activation".into();
            step.attributes = vec![text("kind", "swiglu-oai")];
        },
        BAD,
        "(activation|`kind`|`swiglu-oai`",
    ),
    (
        "recurrence in an encoder",
        |p| {
            let head = p.steps.last_mut().unwrap();
            head.op = "pool".into();
            head.attributes = vec![text("kind", "mean"), flag("normalize", true)];
            p.extras.push(("unused".into(), "head".into()));
        },
        NEW,
        "recurrence|generates|`pool`",
    ),
];

#[test]
fn each_fault_is_refused_and_named() {
    for (name, spoil, code, words) in FAULTS {
        let (tiny, mut program) = model(Quant::F32);
        spoil(&mut program);
        let Err(fault) = check(&program, &tiny.metadata) else { panic!("{name}: accepted") };
        let error = Error::from(fault);
        assert_eq!(error.code, *code, "{name}: {error}");
        for word in words.split('|') {
            assert!(error.message.contains(word), "{name}: no {word:?} in {:?}", error.message);
        }
    }
}
