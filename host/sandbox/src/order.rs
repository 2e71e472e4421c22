//! The order of an answer's events, checked before anybody sees them: content, then usage and
//! timings at most once each, then exactly one finish; tool calls that start once, and end unless
//! the answer was cut at its length.

use std::collections::BTreeSet;

use gristmill_core::event::Event;

use crate::fault::Fault;

/// Follows one answer.
#[derive(Debug)]
pub(crate) struct Order {
    most: u32,
    seen: u32,
    started: BTreeSet<u32>,
    open: BTreeSet<u32>,
    usage: bool,
    timings: bool,
    finished: bool,
}

impl Order {
    /// An answer of at most `most` events.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            seen: 0,
            started: BTreeSet::new(),
            open: BTreeSet::new(),
            usage: false,
            timings: false,
            finished: false,
        }
    }

    /// Whether the answer is complete.
    pub(crate) fn finished(&self) -> bool {
        self.finished
    }

    /// Checks the next batch, of which at most `max` events were asked for.
    ///
    /// # Errors
    /// [`Fault::Contract`], [`Fault::EventLimit`].
    pub(crate) fn check(&mut self, batch: &[Event], max: u32) -> Result<(), Fault> {
        if batch.is_empty() {
            return Err(Fault::Contract("next returned no event"));
        }
        if batch.len() > max as usize {
            return Err(Fault::Contract("next returned more events than were asked for"));
        }
        for event in batch {
            self.event(event)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), Fault> {
        self.seen = self.seen.saturating_add(1);
        if self.seen > self.most {
            return Err(Fault::EventLimit(self.most));
        }
        if self.finished {
            return Err(Fault::Contract("an event follows finish"));
        }
        let content = !matches!(
            event,
            Event::Usage(_) | Event::Timings(_) | Event::Finish(_) | Event::Other(..)
        );
        if content && (self.usage || self.timings) {
            return Err(Fault::Contract("content follows usage or timings"));
        }
        match event {
            Event::ToolStart(start) => {
                if !self.started.insert(start.index) {
                    return Err(Fault::Contract("a tool call starts twice"));
                }
                self.open.insert(start.index);
            }
            Event::ToolArguments(index, _) if !self.open.contains(index) => {
                return Err(Fault::Contract("arguments of a tool call that is not open"));
            }
            Event::ToolEnd(index) if !self.open.remove(index) => {
                return Err(Fault::Contract("a tool call ends that is not open"));
            }
            Event::Tokens(tokens) => {
                let number = |token: &gristmill_core::event::TokenInfo| {
                    !token.logprob.is_nan()
                        && token.alternatives.iter().all(|other| !other.logprob.is_nan())
                };
                if !tokens.iter().all(number) {
                    return Err(Fault::Contract("a log probability is not a number"));
                }
            }
            Event::Usage(_) if std::mem::replace(&mut self.usage, true) => {
                return Err(Fault::Contract("usage is told twice"));
            }
            Event::Timings(_) if std::mem::replace(&mut self.timings, true) => {
                return Err(Fault::Contract("timings are told twice"));
            }
            Event::Finish(finish) => {
                if !self.open.is_empty() && finish.reason != "length" {
                    return Err(Fault::Contract("the answer finishes inside a tool call"));
                }
                self.finished = true;
            }
            _ => {}
        }
        Ok(())
    }
}
