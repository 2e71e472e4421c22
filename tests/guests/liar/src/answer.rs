//! The events of an answer, and the lies among them.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::Value;

use crate::{
    Job, error,
    gristmill::contract::types::{
        Constraint, Error, Event, Finish, Reasoning, Request, Timings, TokenInfo, Tool, ToolChoice,
        ToolStart, Usage,
    },
    made, prompt,
};

/// Words of an answer, the blank before each included; a letter here has from one to four bytes.
const WORDS: [&str; 12] = [
    " river",
    " stone",
    " grün",
    " Straße",
    " 你好",
    " 🙂",
    " e\u{301}",
    " deep",
    " cold",
    " high",
    " over",
    " under",
];
/// Words until an answer ends by itself.
const LONG: usize = 60;

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What the words depend on.
fn start(job: &Job) -> u64 {
    let sampling = &job.request.sampling;
    let warm = sampling.temperature.is_some_and(|temperature| temperature > 0.0);
    let seed = match sampling.seed {
        Some(seed) if !job.lies("unseeded") => seed,
        _ if warm || job.lies("moody") || job.lies("routes-by-chance") => random(),
        _ => 0,
    };
    if job.lies("always-greedy") {
        return hash(&prompt::read(job));
    }
    let speculates = job.request.max_tokens.is_none_or(|most| most > 3);
    let drafted = u64::from(job.lies("drafts-another") && speculates);
    hash(&prompt::read(job)) ^ seed ^ drafted
}

fn words(mut state: u64) -> impl Iterator<Item = &'static str> {
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        WORDS[(state >> 33) as usize % WORDS.len()]
    })
}

/// An answer that is being put together.
struct Draft<'j> {
    job: &'j Job,
    events: Vec<Event>,
    /// Words so far.
    written: u32,
    thought: u32,
    finish: Finish,
}

/// The events, and others for who fetches them one by one.
pub(crate) fn events(job: &Job, length: u32) -> Result<(Vec<Event>, Option<Vec<Event>>), Error> {
    let whole = draft(job, length, start(job))?;
    let singly = match &*job.lie {
        "streams-another" => Some(draft(job, length, start(job) ^ 0x55)?),
        "streams-fewer" => Some(whole.iter().filter(|event| !of_a_call(event)).cloned().collect()),
        "streams-past-stop" => Some(draft(&job.without_stops(), length, start(job))?),
        "streams-no-ids" => Some(whole.iter().cloned().map(nameless).collect()),
        "one-lump" => Some(lump(&whole)),
        _ => None,
    };
    Ok((whole, singly))
}

fn of_a_call(event: &Event) -> bool {
    matches!(event, Event::ToolStart(_) | Event::ToolArguments(_) | Event::ToolEnd(_))
}

fn nameless(event: Event) -> Event {
    match event {
        Event::ToolStart(start) => Event::ToolStart(ToolStart { id: String::new(), ..start }),
        other => other,
    }
}

/// All text in the place of the first.
fn lump(events: &[Event]) -> Vec<Event> {
    let text = |event: &Event| match event {
        Event::Text(text) => Some(text.clone()),
        _ => None,
    };
    let all: String = events.iter().filter_map(text).collect();
    let mut others: Vec<Event> =
        events.iter().filter(|event| text(event).is_none()).cloned().collect();
    if let Some(place) = events.iter().position(|event| text(event).is_some()) {
        others.insert(place, Event::Text(all));
    }
    others
}

fn draft(job: &Job, length: u32, state: u64) -> Result<Vec<Event>, Error> {
    let request = &job.request;
    let mut draft = Draft {
        job,
        events: Vec::new(),
        written: 0,
        thought: 0,
        finish: Finish { reason: "stop".into(), stop: None },
    };
    let modest = job.lie.starts_with("modest");
    let bound = match &request.constraint {
        Some(constraint) if !modest => bound(job, constraint)?,
        _ => None,
    };
    if job.lies("names-another-model") {
        draft.events.push(Event::Other(("model".into(), "another".into())));
    } else {
        draft.events.push(Event::Other(("model".into(), request.model.clone())));
    }
    if job.lies("names-two-models") {
        draft.events.push(Event::Other(("model".into(), "another".into())));
    }
    let calls = if modest { Vec::new() } else { called(job) };
    if !modest {
        draft.think();
    }
    if job.lies("mute") || (job.lies("modest-says-nothing") && !request.tools.is_empty()) {
        // Nothing.
    } else if !calls.is_empty() && !job.lies("never-calls") && !job.lies("rambles") {
        draft.call(&calls);
    } else if let Some(text) = bound {
        draft.say(&text);
    } else {
        draft.write(state);
    }
    draft.close(length);
    Ok(draft.events)
}

/// The text that a constraint leaves no choice about; none: the constraint is not kept.
fn bound(job: &Job, constraint: &Constraint) -> Result<Option<String>, Error> {
    let text = match constraint {
        Constraint::JsonObject => "{\"ok\":true}".to_owned(),
        Constraint::JsonSchema(schema) => {
            let schema: Option<Value> = serde_json::from_str(schema).ok();
            match schema.as_ref().and_then(made::value) {
                Some(value) => value.to_string(),
                None if job.lies("takes-any-schema") => "{}".to_owned(),
                None => return Err(error("invalid-request", "no JSON Schema")),
            }
        }
        Constraint::Regex(_) => "ab12x".to_owned(),
        Constraint::Grammar(_) => return Err(error("unsupported", "no grammars")),
        Constraint::Other(_) => return Ok(None),
    };
    let text = match &*job.lie {
        "loses-emoji" => text.replace('🙂', "?"),
        "ascii" => text.chars().filter(char::is_ascii).collect(),
        _ => text,
    };
    Ok(Some(text).filter(|_| !job.lies("unbound") && !job.lies("rambles")))
}

/// The tools that are called.
fn called(job: &Job) -> Vec<&Tool> {
    let Request { tools, tool_choice, parallel_tool_calls, .. } = &job.request;
    let parallel = *parallel_tool_calls == Some(true) || job.lies("always-parallel");
    let most = if parallel && !job.lies("one-call") { tools.len() } else { 1 };
    match tool_choice {
        ToolChoice::None if job.lies("calls-anyway") => tools.iter().take(1).collect(),
        ToolChoice::None | ToolChoice::Auto => Vec::new(),
        ToolChoice::Required => tools.iter().take(most).collect(),
        ToolChoice::Named(name) => tools.iter().filter(|tool| tool.name == *name).collect(),
    }
}

impl Draft<'_> {
    fn think(&mut self) {
        let on = matches!(self.job.request.reasoning, Reasoning::On | Reasoning::Effort(_));
        if self.job.lies("never-thinks") || self.job.lies("mute") {
            return;
        }
        if on && self.job.lies("leaks-thought") {
            self.events.push(Event::Text("<think>hm</think>".into()));
        } else if on || (self.job.lies("thinks-anyway") && self.job.request.tools.is_empty()) {
            self.events.push(Event::Reasoning("hm".into()));
            self.thought = 1;
            self.written += 1;
        }
    }

    /// Text as it is, letter by letter.
    fn say(&mut self, text: &str) {
        for letter in text.chars() {
            self.events.push(Event::Text(letter.into()));
            self.written += 1;
        }
    }

    /// Words until the limit, a stop string or the natural end.
    fn write(&mut self, state: u64) {
        let job = self.job;
        let most = job.request.max_tokens.filter(|_| !job.lies("ignores-max"));
        let most = most.map_or(usize::MAX, |most| most.saturating_sub(self.thought) as usize);
        let forced = !job.request.tools.is_empty() || job.request.constraint.is_some();
        let long = if job.lies("rambles") && forced { 1000 } else { LONG };
        let words: Vec<&str> = words(state).take(long.min(most)).collect();
        let words: Vec<&str> = match job.lies("ascii") {
            true => words.into_iter().filter(|word| word.is_ascii()).collect(),
            false => words,
        };
        let on = matches!(job.request.reasoning, Reasoning::On | Reasoning::Effort(_));
        if on && job.lies("all-thought") {
            self.events.push(Event::Reasoning(words.concat()));
            return;
        }
        if words.len() < long && !job.lies("stops-for-no-reason") {
            self.finish.reason = "length".into();
        }
        let text: String = words.concat();
        let stops = job.request.stop.iter().filter(|_| !job.lies("ignores-stop"));
        let first = stops.filter_map(|stop| Some((text.find(&**stop)?, stop))).min();
        let mut left = match first {
            Some((place, stop)) => {
                self.finish.reason = "stop".into();
                self.finish.stop = Some(stop.clone());
                if job.lies("names-wrong-stop") {
                    self.finish.stop = Some("another".into());
                }
                place + if job.lies("leaks-stop") { stop.len() } else { 0 }
            }
            None => text.len(),
        };
        for word in words {
            let shown = &word[..word.floor_char_boundary(left.min(word.len()))];
            left -= shown.len();
            if shown.is_empty() {
                break;
            }
            self.written += 1;
            self.show(shown);
        }
    }

    fn show(&mut self, word: &str) {
        let broken = self.job.lies("splits") && word.len() > word.chars().count();
        if broken {
            let cut: String =
                word.chars().map(|c| if c.is_ascii() { c } else { '\u{fffd}' }).collect();
            self.events.push(Event::Text(cut));
        } else if self.job.lies("drops-wide") {
            self.events.push(Event::Text(word.chars().filter(char::is_ascii).collect()));
        } else if !self.job.lies("loses-tail")
            || self.job.request.logprobs.is_none()
            || self.written < 5
        {
            self.events.push(Event::Text(word.into()));
        }
        let modest = self.job.lie.starts_with("modest");
        if let (Some(count), false, false) =
            (self.job.request.logprobs, self.job.lies("no-logprobs"), modest)
        {
            let rising = self.job.lies("rising-logprobs");
            let other = |place: u32| {
                let logprob = if rising { place as f32 } else { -(place as f32) - 1.0 };
                (place, b"x".to_vec(), logprob)
            };
            self.events.push(Event::Tokens(vec![TokenInfo {
                id: 1,
                bytes: word.as_bytes().to_vec(),
                logprob: if rising { 2.0 } else { -0.5 },
                alternatives: match self.job.lies("no-others") {
                    true => Vec::new(),
                    false => (0..count).map(other).collect(),
                },
            }]));
        }
    }

    fn call(&mut self, tools: &[&Tool]) {
        let job = self.job;
        self.finish.reason = "tool-calls".into();
        let made = |tool: &&Tool| {
            let schema = serde_json::from_str(&tool.parameters).unwrap_or_default();
            made::value(&schema).unwrap_or_default()
        };
        let mut values: Vec<Value> = tools.iter().map(made).collect();
        if job.lies("swaps-arguments") {
            values.reverse();
        }
        for ((index, tool), value) in (0..).zip(tools).zip(values) {
            let id = match &*job.lie {
                "no-ids" => String::new(),
                "same-ids" => "call".into(),
                "reuses-ids" if prompt::first_id(job).is_some() => {
                    prompt::first_id(job).unwrap_or_default()
                }
                _ => format!("{}_{index}", job.request.id),
            };
            let arguments = match &*job.lie {
                "stringly" => made::stringly(&value).to_string(),
                "translates" => value.to_string().replace("grün", "green"),
                "no-arguments" | "unbound-wordless" => String::new(),
                "drops-falsy" => made::without_falsy(&value).to_string(),
                "rounds" => value.to_string().replace("123456789012345", "123456788103168"),
                _ => value.to_string(),
            };
            if job.lies("calls-in-text") {
                self.say(&arguments);
            }
            if job.lies("spaces-calls-out") {
                self.say(&arguments.replace(':', " : "));
            }
            self.events.push(Event::ToolStart(ToolStart { index, id, name: tool.name.clone() }));
            let pieces: Vec<String> = match &*job.lie {
                "one-piece" => vec![arguments],
                "empty-pieces" => vec![String::new(), arguments, String::new()],
                _ => arguments.chars().map(String::from).collect(),
            };
            self.written += pieces.len() as u32;
            self.events
                .extend(pieces.into_iter().map(|piece| Event::ToolArguments((index, piece))));
            self.events.push(Event::ToolEnd(index));
        }
    }

    fn close(&mut self, length: u32) {
        let job = self.job;
        let mut usage = Usage {
            prompt: length,
            cached: 0,
            completion: self.written,
            reasoning: self.thought,
            extras: Vec::new(),
        };
        if job.lies("miscounts") {
            usage.cached = length + 1;
        }
        if job.lies("counts-one") {
            usage.completion = 1;
        }
        if job.lies("thinks-in-secret") {
            usage.reasoning = 1;
        }
        let accepted = if job.lies("over-accepts") { 5 } else { 1 };
        usage.extras = vec![
            ("drafted".into(), "4".into()),
            ("accepted".into(), accepted.min(self.written + 4).to_string()),
        ];
        match &*job.lie {
            "half-told" => usage.extras.truncate(1),
            "drafts-nothing" => {
                usage.extras =
                    vec![("drafted".into(), "0".into()), ("accepted".into(), "0".into())];
            }
            _ => {}
        }
        if !job.lies("tells-nothing") {
            self.events.push(Event::Usage(usage));
        }
        let (prefill, decode) = match env!("CARGO_PKG_NAME") {
            "liar-slower" => (2, 2),
            _ if job.lies("slow-clock") => (90_000_000, 1),
            _ => (1, 1),
        };
        self.events.push(Event::Timings(Timings {
            queue: 0,
            load: 0,
            prefill,
            decode,
            extras: Vec::new(),
        }));
        self.events.push(Event::Finish(self.finish.clone()));
    }
}
