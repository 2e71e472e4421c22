//! What is measured: a table of cells, and for each the ratio to llama.cpp it has to reach.
//!
//! The bounds of prefill are those of a machine without AMX. On one that has it ours uses it for
//! every type and llama.cpp for some: [`PREFILL_AMX`] and [`PREFILL_PLAIN`].

/// One process of either engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// Tokens of prompt to read; 0: none.
    pub(super) prefill: u32,
    /// Tokens to write, per stream; 0: none.
    pub(super) decode: u32,
    /// Tokens that are in the cache before writing begins.
    pub(super) depth: u32,
    /// Sequences that are written at once.
    pub(super) streams: u32,
}

/// Which of the two speeds a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speed {
    Prefill,
    Decode,
}

/// A ratio to reach, and one to aim for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) must: f64,
    pub(super) aim: f64,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) speed: Speed,
    pub(super) goal: Goal,
}

/// Rows that come from the same processes.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    /// As `measure model` takes it.
    pub(super) model: String,
    pub(super) work: Work,
    pub(super) rows: Vec<Row>,
    /// Whether llama.cpp's AMX build has a path for the type.
    pub(super) amx: bool,
}

impl Cell {
    /// What a row is called.
    pub(super) fn label(&self, row: Row) -> String {
        match (row.speed, self.work) {
            (Speed::Prefill, work) => format!("prefill {}", work.prefill),
            (Speed::Decode, Work { depth: 0, streams: 1, decode, .. }) => {
                format!("decode {decode}")
            }
            (Speed::Decode, Work { streams: 1, depth, .. }) => format!("decode at {depth}"),
            (Speed::Decode, Work { streams, .. }) => format!("{streams} streams"),
        }
    }
}

/// Reading and writing one answer, as everything is usually measured.
pub(super) const USUAL: Work = Work { prefill: 512, decode: 128, depth: 0, streams: 1 };
/// Writing in a long conversation; SmolLM2's context ends at 8192.
const DEEP: Work = Work { prefill: 0, decode: 64, depth: 8000, streams: 1 };
/// Several answers at once.
const STREAMS: Work = Work { prefill: 0, decode: 128, depth: 0, streams: 8 };

const PREFILL: Goal = Goal { must: 4.0, aim: 6.0 };
/// Prefill against llama.cpp's AMX path.
pub(super) const PREFILL_AMX: Goal = Goal { must: 3.0, aim: 4.5 };
/// Prefill where there is AMX and llama.cpp has no path for the type.
pub(super) const PREFILL_PLAIN: Goal = Goal { must: 6.0, aim: 11.0 };

/// Models whose quantization llama.cpp has fast paths for, and those for which it has none.
const USUAL_TYPES: Goal = Goal { must: 1.5, aim: 1.9 };
const OTHER_TYPES: Goal = Goal { must: 1.8, aim: 2.5 };

/// The two real models and what they do at once and at length.
pub(super) fn short() -> Vec<Cell> {
    let decode = |model: &str, work, must, aim| Cell {
        model: model.to_owned(),
        work,
        rows: vec![Row { speed: Speed::Decode, goal: Goal { must, aim } }],
        amx: true,
    };
    vec![
        usual("smollm2", Goal { must: 1.3, aim: 1.5 }),
        // Q5_0 for the most part of its layers.
        without_amx(usual("gemma3", Goal { must: 1.45, aim: 1.7 })),
        decode("smollm2", DEEP, 2.5, 4.0),
        decode("smollm2", STREAMS, 2.0, 3.5),
    ]
}

/// All of them: also larger models and every kind of quantization, in made-up weights.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = short();
    for model in
        ["qwen2.5-1.5b:q4_k_m", "qwen2.5-1.5b:q6_k", "qwen2.5-1.5b:q8_0", "qwen2.5-3b:q4_k_m"]
    {
        cells.push(usual(model, USUAL_TYPES));
    }
    for mix in ["q5_0", "q3_k", "iq2_xs", "iq3_s", "iq4_xs", "tq2_0", "mxfp4"] {
        let cell = usual(&format!("qwen3-0.6b:{mix}"), OTHER_TYPES);
        cells.push(if mix == "iq4_xs" { cell } else { without_amx(cell) });
    }
    cells
}

/// A model of the caller's: held to what every type has to reach.
pub(super) fn usual(model: &str, decode: Goal) -> Cell {
    Cell {
        model: model.to_owned(),
        work: USUAL,
        rows: vec![
            Row { speed: Speed::Decode, goal: decode },
            Row { speed: Speed::Prefill, goal: PREFILL },
        ],
        amx: true,
    }
}

fn without_amx(cell: Cell) -> Cell {
    Cell { amx: false, ..cell }
}

/// The cell of a model that was named on the command line.
pub(super) fn named(model: &str) -> Cell {
    all().into_iter().find(|cell| cell.model == model).unwrap_or_else(|| usual(model, USUAL_TYPES))
}

#[cfg(test)]
mod tests {
    use super::{Goal, all, named, short};

    #[test]
    fn the_short_table_is_the_beginning_of_the_whole_and_labels_are_distinct() {
        let labels: Vec<String> = all()
            .iter()
            .flat_map(|cell| {
                cell.rows.iter().map(|row| format!("{} {}", cell.model, cell.label(*row)))
            })
            .collect();
        let mut distinct = labels.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), labels.len());
        assert!(labels.starts_with(
            &["smollm2 decode 128", "smollm2 prefill 512", "gemma3 decode 128"].map(str::to_owned)
        ));
        assert!(labels.contains(&"smollm2 decode at 8000".to_owned()));
        assert!(labels.contains(&"smollm2 8 streams".to_owned()));
        assert_eq!(short().len(), 4);
        assert!(all().iter().all(|cell| cell.rows.iter().all(|row| row.goal.must < row.goal.aim)));
    }

    #[test]
    fn a_named_model_has_its_own_goal_and_a_foreign_one_the_usual() {
        assert_eq!(named("gemma3").rows[0].goal, Goal { must: 1.45, aim: 1.7 });
        assert_eq!(named("/some/file.gguf").rows[0].goal, Goal { must: 1.5, aim: 1.9 });
    }
}
