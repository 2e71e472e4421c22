//! The survey over JSON-Schema-Test-Suite: for every schema of the sample, whether it is enforced or
//! refused, what that does to the suite's instances and to random answers, and what it costs.

use std::{fmt::Write, sync::Arc, time::Instant};

use gristmill_core::request::Constraint;
use gristmill_engine::constraint::{Checker, Rule};
use gristmill_models::{Gguf, Tokenizer};
use gristmill_testing::{
    fetch,
    models::{Family, Random, Shape},
};
use serde_json::Value;

/// The files of the sample: every keyword of the draft, and the formats that are enforced.
const SETS: [(&str, &str); 3] = [
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
    ("draft2020-12/optional/format", ""),
];

/// What was found.
#[derive(Debug, Default)]
pub struct Survey {
    pub schemas: usize,
    pub enforced: usize,
    /// Refused, by keyword of the path.
    pub refused: Vec<(String, String)>,
    /// Enforced, but an invalid instance is accepted or a random answer is invalid.
    pub weakened: Vec<String>,
    /// Valid instances that are not accepted.
    pub narrower: Vec<String>,
    pub valid: usize,
    pub answers: usize,
    pub cut: usize,
    /// Microseconds.
    pub steps: Vec<f64>,
    pub compiles: Vec<f64>,
}

pub fn tokenizer() -> Arc<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.gguf");
    let shape = Shape { layers: 1, vocabulary: 1536, ..Shape::tiny(Family::Llama) };
    gristmill_testing::models::write(&shape, "q8_0", 1, &path).unwrap();
    Arc::new(Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap())
}

/// Every `nth` schema of the sets.
pub fn run(tokenizer: Arc<Tokenizer>, nth: usize, answers: u64) -> Survey {
    let checker = Checker::new(Arc::clone(&tokenizer)).unwrap();
    let suite = fetch::json_schema_suite().unwrap();
    let mut survey = Survey::default();
    let mut seen = 0;
    for (set, dialect) in SETS {
        let mut files: Vec<_> = std::fs::read_dir(suite.join("tests").join(set))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
            .collect();
        files.sort();
        for file in files {
            let cases: Vec<Value> =
                serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            for case in cases {
                seen += 1;
                if seen % nth == 0 {
                    let name = format!(
                        "{set}/{}: {}",
                        file.file_stem().unwrap().display(),
                        case["description"].as_str().unwrap()
                    );
                    survey.case(&checker, &tokenizer, &name, dialect, &case, answers);
                }
            }
        }
    }
    survey
}

impl Survey {
    fn case(
        &mut self,
        checker: &Checker,
        tokenizer: &Tokenizer,
        name: &str,
        dialect: &str,
        case: &Value,
        answers: u64,
    ) {
        let mut schema = case["schema"].clone();
        if let (Some(object), false) = (schema.as_object_mut(), dialect.is_empty()) {
            object.entry("$schema").or_insert_with(|| dialect.into());
        }
        self.schemas += 1;
        let begun = Instant::now();
        let compiled = checker.compile(&Constraint::JsonSchema(schema.to_string()));
        self.compiles.push(begun.elapsed().as_secs_f64() * 1e6);
        let rule = match compiled {
            Ok(rule) => rule,
            Err(error) => {
                let path = error.details.iter().find(|(key, _)| key == "path");
                let path = path.unwrap_or_else(|| panic!("{name}: no path in {error:?}"));
                let keyword = path.1.rsplit('/').find(|k| k.parse::<u32>().is_err()).unwrap_or("");
                self.refused.push((keyword.to_owned(), format!("{name}: {}", error.message)));
                return;
            }
        };
        self.enforced += 1;
        for test in case["tests"].as_array().unwrap() {
            let (data, valid) = (&test["data"], test["valid"].as_bool().unwrap());
            let taken = orders(data).iter().any(|text| rule.accepts(text).unwrap());
            self.valid += usize::from(valid);
            if valid && !taken {
                self.narrower.push(format!("{name}: {data}"));
            }
            if !valid && taken {
                self.weakened.push(format!("{name}: accepts {data}"));
            }
        }
        let validator = jsonschema::options().should_validate_formats(true).build(&schema);
        let validator = validator.unwrap_or_else(|error| panic!("{name}: {error}"));
        for seed in 0..answers {
            match answer(&rule, tokenizer, seed, 300, &mut self.steps) {
                None => self.cut += 1,
                Some(text) => {
                    self.answers += 1;
                    match parse(&text) {
                        Some(value) if validator.is_valid(&value) => {}
                        _ => self.weakened.push(format!("{name}: says {text}")),
                    }
                }
            }
        }
    }

    pub fn report(&mut self) -> String {
        let mut out = String::new();
        let share = |n: usize, of: usize| 100.0 * n as f64 / of as f64;
        let (n, enforced, refused) = (self.schemas, self.enforced, self.refused.len());
        let _ = writeln!(
            out,
            "{n} schemas: {enforced} enforced ({:.1} %), {refused} refused with a path ({:.1} %), {} weakened",
            share(enforced, n),
            share(refused, n),
            self.weakened.len()
        );
        let _ = writeln!(
            out,
            "{} of {} valid instances accepted; {} random answers complete and valid, {} cut",
            self.valid - self.narrower.len(),
            self.valid,
            self.answers,
            self.cut
        );
        for (what, times) in [("step", &mut self.steps), ("compile", &mut self.compiles)] {
            times.sort_by(f64::total_cmp);
            let at = |share: f64| {
                times.get(((times.len() - 1) as f64 * share) as usize).copied().unwrap_or_default()
            };
            let _ = writeln!(out, "{what}: p50 {:.0} µs, p99 {:.0} µs", at(0.5), at(0.99));
        }
        let mut keywords: Vec<&str> = self.refused.iter().map(|(k, _)| k.as_str()).collect();
        keywords.sort_unstable();
        for chunk in keywords.chunk_by(|a, b| a == b) {
            let name = if chunk[0].is_empty() { "(the whole)" } else { chunk[0] };
            let _ = writeln!(out, "  refused at {name}: {}", chunk.len());
        }
        out
    }
}

/// A random answer, unless it grows too long.
pub fn answer(
    rule: &Rule,
    tokenizer: &Tokenizer,
    seed: u64,
    most: usize,
    steps: &mut Vec<f64>,
) -> Option<String> {
    let mut random = Random::new(seed);
    let mut draw = |n: usize| (random.next() % n.max(1) as u64) as usize;
    let mut walk = rule.walk();
    let mut bytes = Vec::new();
    for _ in 0..most {
        let begun = Instant::now();
        let allowed = walk.allowed().unwrap();
        steps.push(begun.elapsed().as_secs_f64() * 1e6);
        let ends = tokenizer.ends().iter().any(|token| allowed.binary_search(token).is_ok());
        if ends && draw(2) == 0 {
            return Some(String::from_utf8(bytes).unwrap());
        }
        // Text ends in finite time only if quotes and brackets are likelier than letters.
        let closing: Vec<u32> = ["\"", "}", "]"]
            .iter()
            .filter_map(|text| tokenizer.id_of(text))
            .filter(|token| allowed.binary_search(token).is_ok())
            .collect();
        let token = match draw(4) {
            0 if !closing.is_empty() => closing[draw(closing.len())],
            _ => allowed[draw(allowed.len())],
        };
        if tokenizer.is_end(token) {
            return Some(String::from_utf8(bytes).unwrap());
        }
        assert!(walk.accept(token), "a token of the mask is refused");
        bytes.extend(tokenizer.token_bytes(token).unwrap());
    }
    None
}

/// JSON, whose numbers may be larger than any float: then the largest stands for them.
pub fn parse(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) if error.to_string().starts_with("number out of range") => {
            let column = error.column();
            let number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
            let line: usize = text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum();
            let at = (line + column).min(text.len());
            let at = text[..at].rfind(|c: char| !number(c)).map_or(0, |n| n + 1);
            let end = text[at..].find(|c: char| !number(c)).map_or(text.len(), |n| at + n);
            let sign = if text[at..].starts_with('-') { "-" } else { "" };
            parse(&format!("{}{sign}1e300{}", &text[..at], &text[end..]))
        }
        Err(_) => None,
    }
}

/// A value's spellings, with the members of its objects in every order (as long as they are few):
/// an answer has them in the schema's order, an instance of the suite in any.
pub fn orders(value: &Value) -> Vec<String> {
    const MOST: usize = 2000;
    match value {
        Value::Object(map) => {
            let members: Vec<Vec<String>> = map
                .iter()
                .map(|(k, v)| {
                    orders(v).iter().map(|v| format!("{}:{v}", Value::from(k.as_str()))).collect()
                })
                .collect();
            let mut out = Vec::new();
            for order in permutations(members.len()) {
                let mut texts = vec![String::new()];
                for (n, &member) in order.iter().enumerate() {
                    let comma = if n > 0 { "," } else { "" };
                    texts = texts
                        .iter()
                        .flat_map(|t| members[member].iter().map(move |m| format!("{t}{comma}{m}")))
                        .take(MOST)
                        .collect();
                }
                out.extend(texts.into_iter().map(|text| format!("{{{text}}}")));
                if out.len() > MOST {
                    break;
                }
            }
            out
        }
        Value::Array(items) => {
            let mut texts = vec![String::new()];
            for (n, item) in items.iter().enumerate() {
                let comma = if n > 0 { "," } else { "" };
                let item = orders(item);
                texts = texts
                    .iter()
                    .flat_map(|t| item.iter().map(move |m| format!("{t}{comma}{m}")))
                    .take(MOST)
                    .collect();
            }
            texts.into_iter().map(|text| format!("[{text}]")).collect()
        }
        other => vec![other.to_string()],
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    if n > 6 {
        return vec![(0..n).collect()];
    }
    permutations(n - 1)
        .into_iter()
        .flat_map(|short| {
            (0..n).map(move |at| {
                let mut long = short.clone();
                long.insert(at, n - 1);
                long
            })
        })
        .collect()
}
