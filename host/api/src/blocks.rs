//! An answer as a row of blocks: reasoning, text and tool calls, in the order in which they began.
//!
//! Two dialects say it that way. Their streams are the [`Step`]s of this row and their whole answers
//! its end, so both say the same. A text or reasoning block ends where another block begins; calls
//! may be open side by side, and what is still open at the end was cut off.

use gristmill_core::event::{Event, Finish, TokenInfo, Usage};

use serde_json::Value;

use crate::collect::{Call, Collect, Piece, join};

/// What a block says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A part of the answer.
    Text(String),
    /// A stretch of reasoning.
    Reasoning(String),
    /// A tool call.
    Call(Call),
}

/// One block.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// What it says, as far as it has come.
    pub said: Said,
    /// Log probabilities of its tokens, when they were asked for.
    pub tokens: Vec<TokenInfo>,
    /// Whether it may still grow.
    pub open: bool,
    /// It was still being written when the answer was cut off, or it is a call without an end.
    pub cut: bool,
}

/// What happened to the row; the number is the block's place in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A block began.
    Opened(usize),
    /// This was added to it, with the log probabilities of the same stretch.
    Grew(usize, String, Vec<TokenInfo>),
    /// It is complete, or was cut off.
    Closed(usize),
}

/// The row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Blocks {
    /// All blocks so far.
    pub blocks: Vec<Block>,
    /// Token counts.
    pub usage: Option<Usage>,
    /// Why the answer ended.
    pub finish: Option<Finish>,
    /// Log probabilities that came before their text.
    early: Vec<TokenInfo>,
}

impl Collect for Blocks {
    fn take(&mut self, events: Vec<Event>) {
        self.push(events);
    }
}

impl Blocks {
    /// Adds a batch of events.
    pub fn push(&mut self, events: Vec<Event>) -> Vec<Step> {
        let mut steps = Vec::new();
        for piece in join(events) {
            match piece {
                Piece::Text(text, tokens) => self.say(false, text, tokens, &mut steps),
                Piece::Reasoning(text, tokens) => self.say(true, text, tokens, &mut steps),
                Piece::Event(event) => self.event(event, &mut steps),
            }
        }
        steps
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.blocks.iter().filter_map(|block| match &block.said {
            Said::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The answer's text without its reasoning.
    #[must_use]
    pub fn text(&self) -> String {
        self.said(|said| if let Said::Text(text) = said { Some(text) } else { None })
    }

    /// The reasoning.
    #[must_use]
    pub fn reasoning(&self) -> String {
        self.said(|said| if let Said::Reasoning(text) = said { Some(text) } else { None })
    }

    fn said(&self, pick: impl Fn(&Said) -> Option<&String>) -> String {
        self.blocks.iter().filter_map(|block| pick(&block.said)).map(String::as_str).collect()
    }

    fn say(&mut self, reasons: bool, text: String, tokens: Vec<TokenInfo>, steps: &mut Vec<Step>) {
        if text.is_empty() && tokens.is_empty() {
            return;
        }
        let mut tokens = tokens;
        let last = self.blocks.len().checked_sub(1);
        let fits = |block: &Block| match block.said {
            Said::Text(_) => block.open && !reasons,
            Said::Reasoning(_) => block.open && reasons,
            Said::Call(_) => false,
        };
        let place = match last {
            Some(last) if self.blocks.get(last).is_some_and(fits) => last,
            // Tokens whose text is still held back are no block of their own.
            _ if text.is_empty() => return self.early.append(&mut tokens),
            _ => {
                let said = if reasons { Said::Reasoning } else { Said::Text };
                self.open(said(String::new()), steps)
            }
        };
        if !self.early.is_empty() {
            tokens.splice(..0, self.early.drain(..));
        }
        let Some(block) = self.blocks.get_mut(place) else { return };
        if let Said::Text(all) | Said::Reasoning(all) = &mut block.said {
            all.push_str(&text);
        }
        block.tokens.extend(tokens.iter().cloned());
        steps.push(Step::Grew(place, text, tokens));
    }

    fn event(&mut self, event: Event, steps: &mut Vec<Step>) {
        match event {
            Event::ToolStart(start) => {
                self.open(Said::Call(Call::begin(start)), steps);
            }
            Event::ToolArguments(index, piece) => self.argue(index, piece, steps),
            Event::ToolEnd(index) => {
                let Some((place, call)) = self.running(index) else { return };
                call.ended = true;
                // A call without arguments has the empty object for them.
                if call.arguments.trim().is_empty() {
                    self.argue(index, "{}".to_owned(), steps);
                }
                self.close(place, false, steps);
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Finish(finish) => {
                let cut = finish.reason == "length";
                for place in 0..self.blocks.len() {
                    self.close(place, cut, steps);
                }
                self.finish = Some(finish);
            }
            _ => {}
        }
    }

    fn argue(&mut self, index: u32, piece: String, steps: &mut Vec<Step>) {
        if let Some((place, call)) = self.running(index) {
            call.arguments.push_str(&piece);
            steps.push(Step::Grew(place, piece, Vec::new()));
        }
    }

    /// The open call with this index.
    fn running(&mut self, index: u32) -> Option<(usize, &mut Call)> {
        self.blocks.iter_mut().enumerate().rev().find_map(|(place, block)| match &mut block.said {
            Said::Call(call) if block.open && call.index == index => Some((place, call)),
            _ => None,
        })
    }

    fn open(&mut self, said: Said, steps: &mut Vec<Step>) -> usize {
        if let Some(last) = self.blocks.len().checked_sub(1)
            && self.blocks.get(last).is_some_and(|block| !matches!(block.said, Said::Call(_)))
        {
            self.close(last, false, steps);
        }
        let place = self.blocks.len();
        self.blocks.push(Block { said, tokens: Vec::new(), open: true, cut: false });
        steps.push(Step::Opened(place));
        place
    }

    fn close(&mut self, place: usize, cut: bool, steps: &mut Vec<Step>) {
        let Some(block) = self.blocks.get_mut(place).filter(|block| block.open) else { return };
        block.open = false;
        block.cut = cut || matches!(&block.said, Said::Call(call) if !call.ended);
        steps.push(Step::Closed(place));
    }
}

/// A call's arguments as JSON, if they are the object that they should be.
#[must_use]
pub fn object(call: &Call) -> Option<Value> {
    serde_json::from_str(&call.arguments).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::event::ToolStart;

    fn start(index: u32) -> Event {
        Event::ToolStart(ToolStart { index, id: format!("c{index}"), name: "f".into() })
    }

    #[test]
    fn a_block_ends_where_another_begins_and_calls_may_overlap() {
        let mut row = Blocks::default();
        let steps = row.push(vec![
            Event::Reasoning("a".into()),
            Event::Reasoning("b".into()),
            Event::Text("c".into()),
            start(0),
            start(1),
            Event::ToolArguments(0, "{ }".into()),
            Event::ToolEnd(1),
            Event::Text("d".into()),
            Event::ToolEnd(0),
            Event::Finish(Finish::because("stop")),
        ]);
        let grew = |place, text: &str| Step::Grew(place, text.to_owned(), Vec::new());
        assert_eq!(
            steps,
            [
                Step::Opened(0),
                grew(0, "ab"),
                Step::Closed(0),
                Step::Opened(1),
                grew(1, "c"),
                Step::Closed(1),
                Step::Opened(2),
                Step::Opened(3),
                grew(2, "{ }"),
                grew(3, "{}"),
                Step::Closed(3),
                Step::Opened(4),
                grew(4, "d"),
                Step::Closed(2),
                Step::Closed(4),
            ]
        );
        assert_eq!((row.text().as_str(), row.reasoning().as_str()), ("cd", "ab"));
        assert!(row.blocks.iter().all(|block| !block.open && !block.cut));
    }

    #[test]
    fn tokens_wait_for_their_text_and_open_no_block() {
        let token = |text: &str| TokenInfo {
            id: 1,
            bytes: text.as_bytes().to_vec(),
            logprob: -0.5,
            alternatives: Vec::new(),
        };
        let mut row = Blocks::default();
        assert!(row.push(vec![Event::Tokens(vec![token("a")])]).is_empty());
        let steps = row.push(vec![Event::Text("ab".into()), Event::Tokens(vec![token("b")])]);
        let both = vec![token("a"), token("b")];
        assert_eq!(steps, [Step::Opened(0), Step::Grew(0, "ab".into(), both.clone())]);
        row.push(vec![start(0), Event::ToolEnd(0)]);
        assert!(row.push(vec![Event::Tokens(vec![token("c")])]).is_empty());
        row.push(vec![Event::Finish(Finish::because("stop"))]);
        assert_eq!(row.blocks.len(), 2);
        assert_eq!(row.blocks[0].tokens, both);
    }

    #[test]
    fn one_event_at_a_time_gives_the_same_row() {
        let events = || {
            vec![
                Event::Text("a".into()),
                Event::Text("b".into()),
                start(0),
                Event::ToolArguments(0, "{\"x\"".into()),
                Event::Finish(Finish::because("length")),
            ]
        };
        let mut whole = Blocks::default();
        whole.push(events());
        let mut single = Blocks::default();
        for event in events() {
            single.push(vec![event]);
        }
        assert_eq!(whole, single);
        assert_eq!(whole.blocks.iter().map(|block| block.cut).collect::<Vec<_>>(), [false, true]);
        assert_eq!(whole.calls().next().unwrap().arguments, "{\"x\"");
    }
}
