//! Playing a script: lines become events when they are asked for, so a repetition of a million
//! lines takes no room.

use core::time::Duration;

use gristmill_plugin::{clock, prelude::*};

use crate::{
    CONTEXT, request,
    script::{self, Line},
};

/// A script being played, or a prompt being echoed.
pub(crate) struct Player {
    lines: Vec<Line>,
    at: usize,
    /// How often the line at `at` was played, if it is a repetition.
    repeated: u32,
    /// Events of lines that were played and that nobody has fetched.
    ready: VecDeque<Event>,
    /// The beginning of a character whose other bytes are still to come.
    partial: Vec<u8>,
    request: String,
    tools: u32,
    usage: Usage,
    used: bool,
    over: bool,
}

impl Player {
    /// A script, played as it stands.
    ///
    /// # Errors
    /// A line that is wrong; the error that is the script's first line.
    pub(crate) fn of_script(script: &str, request: &Request) -> Result<Self> {
        let lines = script::parse(script)?;
        match lines.first() {
            Some(Line::Error(error)) => return Err(error.clone()),
            Some(Line::Trap) => return Err(trap()),
            _ => {}
        }
        Ok(Self::new(lines, request))
    }

    /// The prompt, word by word, under the request's limits.
    ///
    /// # Errors
    /// `context-overflow`; `unsupported` for a constraint of a kind nobody knows.
    pub(crate) fn of_echo(prompt: &str, request: &Request) -> Result<Self> {
        let words: Vec<&str> = prompt.split_inclusive(' ').collect();
        let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
        if count > CONTEXT {
            let message = format!("a prompt of {count} words, at most {CONTEXT} are echoed");
            return Err(Error::new("context-overflow", message)
                .with("additional", count)
                .with("limit", CONTEXT));
        }
        if let Some(Constraint::Other((kind, _))) = &request.constraint {
            return Err(Error::unsupported(format!("the constraint {kind} is not known")));
        }
        let most = request.max_tokens.map_or(usize::MAX, |most| most as usize);
        let mut text: String = words.iter().take(most).copied().collect();
        let mut finish = Finish {
            reason: if words.len() > most { "length" } else { "stop" }.to_owned(),
            stop: None,
        };
        let stops = request.stop.iter().filter(|stop| !stop.is_empty());
        if let Some((place, stop)) =
            stops.filter_map(|stop| Some((text.find(stop.as_str())?, stop))).min()
        {
            finish = Finish { reason: "stop".to_owned(), stop: Some(stop.clone()) };
            text.truncate(place);
        }
        let mut lines: Vec<Line> = text
            .split_inclusive(' ')
            .map(|word| Line::Event(Event::Text(word.to_owned())))
            .collect();
        let usage = Usage {
            prompt: u32::try_from(words.len()).unwrap_or(u32::MAX),
            completion: u32::try_from(lines.len()).unwrap_or(u32::MAX),
            ..nothing()
        };
        lines.push(Line::Event(Event::Usage(usage)));
        lines.push(Line::Event(Event::Finish(finish)));
        Ok(Self::new(lines, request))
    }

    fn new(lines: Vec<Line>, request: &Request) -> Self {
        let request = request::as_json(request);
        let usage = Usage { prompt: u32::try_from(lines.len()).unwrap_or(u32::MAX), ..nothing() };
        Self {
            lines,
            at: 0,
            repeated: 0,
            ready: VecDeque::new(),
            partial: Vec::new(),
            request,
            tools: 0,
            usage,
            used: false,
            over: false,
        }
    }

    /// The next line, repetitions unrolled one by one.
    fn line(&mut self) -> Option<Line> {
        while let Some(line) = self.lines.get(self.at) {
            match line {
                Line::Repeat(times, line) if self.repeated < *times => {
                    self.repeated += 1;
                    return Some((**line).clone());
                }
                Line::Repeat(..) => {
                    self.repeated = 0;
                    self.at += 1;
                }
                line => {
                    let line = line.clone();
                    self.at += 1;
                    return Some(line);
                }
            }
        }
        None
    }

    fn play(&mut self, line: Line) -> Result<()> {
        match line {
            Line::Event(event) => self.say(event),
            Line::Token(info, text) => {
                self.say(Event::Text(text));
                self.say(Event::Tokens(vec![info]));
            }
            Line::Bytes(bytes) => self.bytes(&bytes),
            Line::Tool { id, name, arguments } => {
                let index = self.start(id, name);
                self.say(Event::ToolArguments((index, arguments)));
                self.say(Event::ToolEnd(index));
            }
            Line::ToolStart { id, name } => {
                self.start(id, name);
            }
            Line::ToolArguments(text) => {
                self.say(Event::ToolArguments((self.tools.saturating_sub(1), text)));
            }
            Line::ToolEnd => self.say(Event::ToolEnd(self.tools.saturating_sub(1))),
            Line::Request => self.say(Event::Text(self.request.clone())),
            // That the batch before it is over is all a flush does.
            Line::Flush | Line::Repeat(..) => {}
            Line::Wait(ms) => wait(ms),
            Line::Error(error) => return Err(error),
            Line::Trap => return Err(trap()),
            Line::Hang => hang(),
            Line::End => self.over = true,
        }
        Ok(())
    }

    fn say(&mut self, event: Event) {
        match &event {
            Event::Text(_) | Event::Reasoning(_) => self.usage.completion += 1,
            Event::Usage(_) => self.used = true,
            Event::Finish(_) => self.over = self.at >= self.lines.len(),
            _ => {}
        }
        self.ready.push_back(event);
    }

    fn start(&mut self, id: String, name: String) -> u32 {
        let index = self.tools;
        self.tools += 1;
        self.say(Event::ToolStart(ToolStart { index, id, name }));
        index
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let (whole, rest) = whole(&self.partial);
        self.partial = rest;
        if !whole.is_empty() {
            self.say(Event::Text(whole));
        }
    }

    /// What a script leaves unsaid.
    fn close(&mut self) {
        if !self.used {
            self.say(Event::Usage(self.usage.clone()));
        }
        let reason = if self.tools > 0 { "tool-calls" } else { "stop" };
        self.say(Event::finish(reason));
        self.over = true;
    }
}

impl Generation for Player {
    fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let max = max.max(1) as usize;
        while self.ready.len() < max && !self.over {
            // Whatever ends a batch waits until what came before it has been fetched.
            let next = match self.lines.get(self.at) {
                Some(Line::Repeat(_, line)) => Some(&**line),
                line => line,
            };
            let ends = matches!(
                next,
                Some(Line::Flush | Line::Wait(_) | Line::Error(_) | Line::Trap | Line::Hang)
            );
            if ends && !self.ready.is_empty() {
                break;
            }
            match self.line() {
                Some(line) => self.play(line)?,
                None => self.close(),
            }
        }
        if self.ready.is_empty() {
            return Ok(None);
        }
        let count = self.ready.len().min(max);
        Ok(Some(self.ready.drain(..count).collect()))
    }
}

/// The whole characters of these bytes, and the beginning of one that is not whole yet. Bytes that
/// can never become a character are replaced.
fn whole(mut bytes: &[u8]) -> (String, Vec<u8>) {
    let mut text = String::new();
    loop {
        match core::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, Vec::new());
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                let Some(bad) = error.error_len() else { return (text, rest.to_vec()) };
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = rest.get(bad..).unwrap_or_default();
            }
        }
    }
}

fn nothing() -> Usage {
    Usage { prompt: 0, cached: 0, completion: 0, reasoning: 0, extras: Vec::new() }
}

/// There is no sleeping in a component: looks at the clock until it is time.
fn wait(ms: u32) {
    let until = clock::monotonic() + Duration::from_millis(ms.into());
    while clock::monotonic() < until {}
}

fn hang() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

fn trap() -> Error {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    Error::internal("only a component can trap")
}
