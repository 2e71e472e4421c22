//! The contract's events, assembled from what a server sends: channels kept apart, tool calls with
//! one id each from the first fragment on, arguments byte for byte, the end held back until it is
//! certain.
//!
//! Refuses (`upstream-error`): an end without a reason, a call without a name, a call that was
//! announced and did not come, an answer that breaks the format it had to have. A call that the limit
//! cut stays open: it has no end.
//!
//! Bounds: [`MOST_CALLS`] calls; text that must be JSON is kept up to [`MOST_CHECKED`] bytes.

use core::mem;

use gristmill_plugin::prelude::*;
use serde::de::IgnoredAny;

use crate::{failure::Manners, stops::Stops};

/// Calls in one answer.
pub const MOST_CALLS: usize = 256;
/// Bytes of an answer that is checked to be JSON; a longer one is passed without the check's word.
pub const MOST_CHECKED: usize = 4 << 20;

/// What the request settles about its answer.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How the server fails.
    pub manners: Manners,
    /// Ids for calls that come without one begin with a number made of this.
    pub seed: u64,
    /// Only the first call counts: the caller wants one at a time and the server has no such switch.
    pub one_call: bool,
    /// A call was required; some servers do not enforce it, and say nothing.
    pub must_call: bool,
    /// The text must be JSON when it is complete.
    pub json: bool,
    /// Stop strings that the server does not look for.
    pub stops: Vec<String>,
    /// What the caller allowed; a call cut there is cut by length.
    pub max_tokens: Option<u32>,
    /// Alternatives that the caller wants of each token at most; some servers send more.
    pub alternatives: usize,
}

impl Rules {
    /// The rules that follow from a request alone.
    #[must_use]
    pub fn of(request: &Request, manners: Manners) -> Self {
        Self {
            manners,
            seed: seed(request),
            one_call: false,
            must_call: !request.tools.is_empty()
                && matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_)),
            json: matches!(
                request.constraint,
                Some(Constraint::JsonObject | Constraint::JsonSchema(_))
            ),
            stops: Vec::new(),
            max_tokens: request.max_tokens,
            alternatives: request.logprobs.unwrap_or(0) as usize,
        }
    }
}

/// One fragment of a tool call, as it came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fragment<'f> {
    /// The server's number of the call; some send none, some 0 for all.
    pub index: Option<u32>,
    /// Its id; some send none, some another with each fragment.
    pub id: Option<&'f str>,
    /// The tool's name; some repeat it.
    pub name: Option<&'f str>,
    /// More of the arguments.
    pub arguments: Option<&'f str>,
}

struct Call {
    wire: Option<u32>,
    given: Option<String>,
    name: String,
    arguments: String,
    /// Its number in the answer, once it has started.
    index: Option<u32>,
    ignored: bool,
}

/// An answer being assembled.
pub struct Answer {
    rules: Rules,
    ready: VecDeque<Event>,
    calls: Vec<Call>,
    started: u32,
    stops: Stops,
    /// Tokens whose text is not said yet, because it may be the beginning of a stop string.
    held: VecDeque<TokenInfo>,
    /// Bytes that were said of the text of `held`.
    ahead: usize,
    checked: String,
    usage: Option<Usage>,
    timings: Option<Timings>,
    finish: Option<Finish>,
    over: bool,
}

impl Answer {
    /// An answer under these rules.
    #[must_use]
    pub fn new(mut rules: Rules) -> Self {
        let stops = Stops::new(mem::take(&mut rules.stops));
        Self {
            rules,
            ready: VecDeque::new(),
            calls: Vec::new(),
            started: 0,
            stops,
            held: VecDeque::new(),
            ahead: 0,
            checked: String::new(),
            usage: None,
            timings: None,
            finish: None,
            over: false,
        }
    }

    /// How the server fails.
    #[must_use]
    pub fn manners(&self) -> Manners {
        self.rules.manners
    }

    /// Whether the last event is there.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the server has said why the answer ends.
    #[must_use]
    pub fn has_reason(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether there are events to fetch.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.ready.is_empty()
    }

    /// At most so many events.
    pub fn take(&mut self, max: u32) -> Vec<Event> {
        let count = self.ready.len().min(max.max(1) as usize);
        self.ready.drain(..count).collect()
    }

    /// More reasoning.
    pub fn reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.flush();
            self.ready.push_back(Event::Reasoning(text.to_owned()));
        }
    }

    /// More of the answer. A stop string of [`Rules::stops`] ends it here.
    ///
    /// # Errors
    /// As [`Answer::complete`].
    pub fn text(&mut self, text: &str) -> Result<()> {
        let (text, stop) = self.stops.push(text);
        self.say(text);
        self.release(stop.is_none() && !self.stops.holds());
        if stop.is_some() {
            // What is still held spells the stop string.
            self.held.clear();
            self.finish = Some(Finish { reason: "stop".to_owned(), stop });
            self.complete()?;
        }
        Ok(())
    }

    fn say(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        if self.rules.json && self.checked.len() <= MOST_CHECKED {
            self.checked.push_str(&text);
        }
        self.ahead += text.len();
        self.ready.push_back(Event::Text(text));
    }

    /// Log probabilities of what was just said; those of text that is held back wait for it.
    pub fn tokens(&mut self, mut tokens: Vec<TokenInfo>) {
        for token in &mut tokens {
            token.alternatives.truncate(self.rules.alternatives);
        }
        self.held.extend(tokens);
        self.release(!self.stops.holds());
    }

    /// Gives out the tokens whose text is said; where all text is, all of them.
    fn release(&mut self, all: bool) {
        let mut count = 0;
        while let Some(token) = self.held.get(count)
            && (all || token.bytes.len() <= self.ahead)
        {
            self.ahead = self.ahead.saturating_sub(token.bytes.len());
            count += 1;
        }
        if all {
            self.ahead = 0;
        }
        if count > 0 {
            self.ready.push_back(Event::Tokens(self.held.drain(..count).collect()));
        }
    }

    /// Says what is held back: a stop string does not reach across another channel.
    fn flush(&mut self) {
        let rest = self.stops.end();
        self.say(rest);
        self.release(true);
    }

    /// More of a call, or a new one.
    ///
    /// # Errors
    /// `upstream-error` for more than [`MOST_CALLS`].
    pub fn fragment(&mut self, fragment: &Fragment<'_>) -> Result<()> {
        let at = match self.call_of(fragment) {
            Some(at) => at,
            None => {
                if self.calls.len() >= MOST_CALLS {
                    let what = format!("expected at most {MOST_CALLS} tool calls in an answer");
                    return Err(self.wrong(&what));
                }
                self.calls.push(Call {
                    wire: fragment.index,
                    given: None,
                    name: String::new(),
                    arguments: String::new(),
                    index: None,
                    ignored: self.rules.one_call && !self.calls.is_empty(),
                });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.index.is_none() && call.given.is_none() {
            call.given = present(fragment.id).map(ToOwned::to_owned);
        }
        if call.name.is_empty() {
            present(fragment.name).unwrap_or_default().clone_into(&mut call.name);
        }
        let piece = fragment.arguments.unwrap_or_default();
        call.arguments.push_str(piece);
        if call.ignored {
            return Ok(());
        }
        match call.index {
            Some(index) if !piece.is_empty() => {
                self.flush();
                self.ready.push_back(Event::ToolArguments((index, piece.to_owned())));
            }
            None if !call.name.is_empty() => {
                let index = self.started;
                self.started += 1;
                call.index = Some(index);
                let made_up = || format!("call_{:016x}{index}", self.rules.seed);
                let start = ToolStart {
                    index,
                    id: call.given.clone().unwrap_or_else(made_up),
                    name: call.name.clone(),
                };
                let all = call.arguments.clone();
                self.flush();
                self.ready.push_back(Event::ToolStart(start));
                if !all.is_empty() {
                    self.ready.push_back(Event::ToolArguments((index, all)));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The call that a fragment continues. A new one begins where the number is new, or where a name
    /// comes with another id, or with another name, or after arguments that are complete.
    fn call_of(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let at = match fragment.index {
            Some(_) => self.calls.iter().rposition(|call| call.wire == fragment.index)?,
            None => self.calls.len().checked_sub(1)?,
        };
        let call = self.calls.get(at)?;
        let Some(name) = present(fragment.name) else { return Some(at) };
        let another = match (present(fragment.id), call.given.as_deref()) {
            (Some(id), Some(known)) => id != known,
            _ if call.name.is_empty() => false,
            _ => name != call.name || is_json(&call.arguments),
        };
        (!another).then_some(at)
    }

    /// Token counts; the last that come count.
    pub fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// The token counts that have come.
    pub fn usage_mut(&mut self) -> Option<&mut Usage> {
        self.usage.as_mut()
    }

    /// Where the time went.
    pub fn timings(&mut self, timings: Timings) {
        self.timings = Some(timings);
    }

    /// The reason in the server's own word. The end itself is [`Answer::complete`]: counts may follow.
    ///
    /// # Errors
    /// `upstream-error` where the word is that the answer failed.
    pub fn reason(&mut self, word: &str, stop: Option<String>) -> Result<()> {
        let reason = match word {
            "stop" | "eos" | "stop_sequence" | "end_turn" => "stop",
            "length" | "limit" | "max_tokens" => "length",
            "tool_calls" | "function_call" => "tool-calls",
            "content_filter" => "content-filter",
            "abort" | "cancelled" => "cancelled",
            "error" => return Err(self.wrong("the server ended the answer with an error")),
            other => other,
        };
        self.finish = Some(Finish { reason: reason.to_owned(), stop });
        Ok(())
    }

    /// The end: calls are closed, then counts, times and the reason.
    ///
    /// # Errors
    /// `upstream-error` for an end that only looks like one.
    pub fn complete(&mut self) -> Result<()> {
        if self.over {
            return Ok(());
        }
        self.flush();
        let Some(mut finish) = self.finish.take() else {
            return Err(self.wrong("the answer ended without a finish reason"));
        };
        let cut = self.calls.last().is_some_and(|call| !is_json(&call.arguments));
        if matches!(finish.reason.as_str(), "stop" | "tool-calls") {
            let spent = self.usage.as_ref().map(|usage| usage.completion);
            if cut && self.rules.max_tokens.is_some_and(|most| spent >= Some(most)) {
                finish.reason = "length".to_owned();
            } else if !self.calls.is_empty() {
                // A call that the caller named ends with "stop" at some servers.
                finish.reason = "tool-calls".to_owned();
            } else if finish.reason == "tool-calls" {
                return Err(self.wrong("the answer ended for a tool call that never came"));
            } else if self.rules.must_call {
                return Err(
                    self.wrong("a tool call was required, and the server let the model go without")
                );
            }
        }
        self.close_calls(&finish.reason)?;
        if self.rules.json && finish.reason == "stop" {
            self.check_json()?;
        }
        self.ready.extend(self.usage.take().map(Event::Usage));
        self.ready.extend(self.timings.take().map(Event::Timings));
        self.ready.push_back(Event::Finish(finish));
        self.over = true;
        Ok(())
    }

    fn close_calls(&mut self, reason: &str) -> Result<()> {
        for call in mem::take(&mut self.calls) {
            let Some(index) = call.index else {
                // One that was cut before its name was whole has nothing to show.
                if call.ignored || reason == "length" {
                    continue;
                }
                return Err(self.wrong("a tool call came without a name"));
            };
            if reason == "length" && !is_json(&call.arguments) {
                continue;
            }
            if call.arguments.is_empty() {
                self.ready.push_back(Event::ToolArguments((index, "{}".to_owned())));
            }
            self.ready.push_back(Event::ToolEnd(index));
        }
        Ok(())
    }

    fn check_json(&self) -> Result<()> {
        if self.checked.len() > MOST_CHECKED || is_json(&self.checked) {
            return Ok(());
        }
        let what = match self.checked.trim() {
            "" => "the answer had to be JSON, and is empty".to_owned(),
            _ => "the answer had to be JSON, and is not: the server did not enforce it".to_owned(),
        };
        Err(self.wrong(&what))
    }

    /// `upstream-error` in the back-end's name.
    #[must_use]
    pub fn wrong(&self, what: &str) -> Error {
        let manners = &self.rules.manners;
        manners.named(Error::upstream(format!("{}: {what}", manners.backend)))
    }
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Another number for each request: FNV-1a over its id and what it starts from. A conversation's next
/// turn is longer, so ids do not meet in it.
fn seed(request: &Request) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    eat(request.id.as_bytes());
    if let Prompt::Chat(messages) = &request.prompt {
        // Of one width everywhere: ids are the same on every machine.
        eat(&(messages.len() as u64).to_le_bytes());
        for message in messages {
            eat(message.whole_text().as_bytes());
            for call in &message.tool_calls {
                eat(call.id.as_bytes());
            }
        }
    }
    hash
}
