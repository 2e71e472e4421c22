//! Prompts that come in bulk: where there are tiles their numbers are rounded otherwise, but no row
//! notices who shares its pass, or how a prompt is cut into passes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::ready::{Ready, distance, ready, tokens};
use gristmill_engine::{
    cache::{Cache, KvTypes},
    execute::{Arena, Model, Row, Want},
    reference::reference_logits,
};
use gristmill_kernels::{Pool, Quant};

/// Tokens of the prompt: passes of tiles, of parts of one, and the last token by itself.
const PROMPT: usize = 75;

/// A prompt's rows from one position to another: all in bulk but the last, whose logits are wanted.
fn prompt(cache: usize, text: &[u32], from: usize, to: usize) -> impl Iterator<Item = Row> {
    (from..to).map(move |position| {
        let wanted = position + 1 == text.len();
        Row { cache, position, token: text[position], wanted, bulk: !wanted }
    })
}

fn step(cache: usize, position: usize) -> Row {
    Row { cache, position, token: position as u32 % 200, wanted: true, bulk: false }
}

struct Engine {
    ready: Ready,
    pool: Pool,
}

impl Engine {
    fn new(architecture: &str, quant: Quant) -> Self {
        Self { ready: ready(architecture, quant), pool: Pool::new(2, false) }
    }

    fn cache(&self) -> Cache {
        Cache::new(&self.ready.plan, KvTypes::default(), 128).unwrap()
    }

    /// The logits that each cache's rows wanted, in order.
    fn pass(&self, caches: &mut [&mut Cache], rows: &[Row], want: Want) -> Vec<Vec<Vec<f32>>> {
        let model =
            Model { plan: &self.ready.plan, weights: &self.ready.weights, pool: &self.pool };
        let mut arena = Arena::new(&self.ready.plan, 128, 16);
        model.run(&mut arena, rows, caches, want).unwrap();
        let mut found = vec![Vec::new(); caches.len()];
        for (n, row) in rows.iter().filter(|row| row.wanted).enumerate() {
            found[row.cache].push(arena.logits(n).values().to_vec());
        }
        found
    }
}

#[test]
fn a_row_does_not_notice_its_neighbours() {
    let text = tokens(PROMPT);
    for (architecture, quant) in
        [("llama", Quant::Q4_0), ("gemma3", Quant::Q8_0), ("qwen3", Quant::Q4_0)]
    {
        let engine = Engine::new(architecture, quant);
        let whole: Vec<Row> = prompt(0, &text, 0, PROMPT).collect();
        let mut alone = engine.cache();
        let expected = engine.pass(&mut [&mut alone], &whole, Want::Result);
        let mut other = engine.cache();
        let steps: Vec<_> = (0..8)
            .map(|n| engine.pass(&mut [&mut other], &[step(0, n)], Want::Result)[0][0].clone())
            .collect();
        // The prompt in pieces, each between the steps of another answer.
        for (cuts, want) in [
            (&[40, 35][..], Want::Result),
            (&[1, 33, 40, 1], Want::Result),
            (&[20, 55], Want::Steps),
        ] {
            let (mut reader, mut writer) = (engine.cache(), engine.cache());
            let (mut read, mut written) = (0, 0);
            let mut found = Vec::new();
            for cut in cuts {
                let guesses = if want == Want::Steps { 3 } else { 1 };
                let mut rows: Vec<Row> = prompt(1, &text, read, read + cut).collect();
                let more = (written..written + guesses).map(|position| step(0, position));
                rows.splice(0..0, more);
                let got = engine.pass(&mut [&mut writer, &mut reader], &rows, want);
                assert_eq!(
                    got[0],
                    steps[written..written + guesses],
                    "{architecture} {cuts:?}: an answer noticed a prompt"
                );
                (read, written) = (read + cut, written + guesses);
                found = got[1].clone();
            }
            assert_eq!(found, expected[0], "{architecture} {cuts:?}: a prompt noticed");
        }
    }
}

#[test]
fn prompts_in_bulk_are_as_close_to_the_reference_as_others() {
    let text = tokens(PROMPT);
    for architecture in ["llama", "qwen2", "qwen3", "gemma2", "gemma3"] {
        let engine = Engine::new(architecture, Quant::Q4_0);
        let Ready { plan, tiny, .. } = &engine.ready;
        let expected = reference_logits(&plan.program, tiny, &text).unwrap();
        let rows: Vec<Row> = prompt(0, &text, 0, PROMPT).collect();
        let found = engine.pass(&mut [&mut engine.cache()], &rows, Want::Result);
        let error = distance(&found[0][0], &expected[expected.len() - 200..]);
        assert!(error < 0.03, "{architecture}: {error:.2e}");
    }
}
