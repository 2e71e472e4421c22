//! The stream of chunks, and the answer in one piece.

use gristmill_plugin::{prelude::*, upstream::Frame};
use serde_json::Value;

use super::{
    Profile,
    chunk::{Choice, Chunk, Delta},
};
use crate::{
    answer::{Answer, Fragment},
    stream::Decoder,
};

/// Reads chunks.
pub(super) struct Chunks {
    /// The only model that may answer, where answers say which one did.
    model: Option<String>,
    done: bool,
    native: bool,
}

impl Chunks {
    pub(super) fn new(profile: &Profile, request: &Request) -> Self {
        let native =
            matches!(request.prompt, Prompt::Infill(_)) && profile.infill == super::Infill::Native;
        let model = profile.tells_model.then(|| request.model.clone());
        Self { model, done: profile.done && !native, native }
    }

    fn chunk(&self, bytes: &[u8], answer: &mut Answer) -> Result<()> {
        let manners = answer.manners();
        let text = core::str::from_utf8(bytes).map_err(|_| {
            manners.nonsense(&format!("{}: a frame is not UTF-8", manners.backend), bytes)
        })?;
        let chunk: Chunk = match serde_json::from_str(text) {
            Ok(chunk) => chunk,
            Err(error) => {
                let why = format!("{}: a frame of another shape ({error})", manners.backend);
                return Err(manners.inside(bytes).unwrap_or_else(|| manners.nonsense(&why, bytes)));
            }
        };
        // Only what has nothing else to say is looked at twice.
        if chunk.choices.as_ref().is_none_or(Vec::is_empty)
            && let Some(error) = manners.inside(bytes)
        {
            return Err(error);
        }
        if let (Some(wanted), Some(found)) = (&self.model, &chunk.model)
            && wanted != found
        {
            let what = format!("asked for the model {wanted}, and another one answered: {found}");
            return Err(answer.wrong(&what));
        }
        for choice in chunk.choices.iter().flatten() {
            if choice.index.unwrap_or(0) != 0 {
                return Err(answer.wrong("asked for one answer, and got several"));
            }
            said(choice, answer)?;
            if answer.is_over() {
                return Ok(());
            }
        }
        if let Some(usage) = &chunk.usage {
            answer.usage(usage.usage());
        }
        if let Some(timings) = &chunk.timings {
            self.timed(timings, answer);
        }
        if self.native {
            answer.text(chunk.content.as_deref().unwrap_or_default())?;
            if chunk.stop == Some(true) {
                let word = chunk.stop_type.as_deref().unwrap_or("stop");
                let stop = chunk.stopping_word.clone().filter(|stop| !stop.is_empty());
                answer.reason(if word == "word" { "stop" } else { word }, stop)?;
                answer.complete()?;
            }
        }
        Ok(())
    }

    fn timed(&self, timings: &super::chunk::WireTimings, answer: &mut Answer) {
        answer.timings(timings.timings());
        let cached = timings.cache_n.unwrap_or_default();
        if answer.usage_mut().is_none() {
            answer.usage(Usage {
                prompt: cached.saturating_add(timings.prompt_n.unwrap_or_default()),
                cached,
                completion: timings.predicted_n.unwrap_or_default(),
                reasoning: 0,
                extras: Vec::new(),
            });
        }
        if let Some(usage) = answer.usage_mut() {
            usage.cached = usage.cached.max(cached);
            for (name, count) in
                [("drafted", timings.draft_n), ("accepted", timings.draft_n_accepted)]
            {
                if let Some(count) = count {
                    usage.extras.push((name.to_owned(), count.to_string()));
                }
            }
        }
    }
}

fn said(choice: &Choice, answer: &mut Answer) -> Result<()> {
    for (delta, whole) in [(&choice.delta, false), (&choice.message, true)] {
        if let Some(delta) = delta {
            spoken(delta, whole, answer)?;
        }
    }
    answer.text(choice.text.as_deref().unwrap_or_default())?;
    if let Some(logprobs) = &choice.logprobs
        && !answer.is_over()
    {
        answer.tokens(logprobs.tokens());
    }
    if let Some(word) = choice.finish_reason.as_deref().filter(|word| !word.is_empty())
        && !answer.is_over()
    {
        let stop = match &choice.stop_reason {
            Some(Value::String(stop)) => Some(stop.clone()),
            _ => None,
        };
        answer.reason(word, stop)?;
    }
    Ok(())
}

fn spoken(delta: &Delta, whole: bool, answer: &mut Answer) -> Result<()> {
    answer.reasoning(delta.thought());
    for text in [&delta.content, &delta.refusal].into_iter().flatten() {
        if answer.is_over() {
            return Ok(());
        }
        answer.text(text)?;
    }
    for (at, call) in (0..).zip(delta.tool_calls.iter().flatten()) {
        if answer.is_over() {
            return Ok(());
        }
        let arguments = call.function.as_ref().and_then(|function| function.arguments());
        answer.fragment(&Fragment {
            index: if whole { Some(at) } else { call.index },
            id: call.id.as_deref(),
            name: call.function.as_ref().and_then(|function| function.name.as_deref()),
            arguments: arguments.as_deref(),
        })?;
    }
    Ok(())
}

impl Decoder for Chunks {
    fn frame(&mut self, frame: &Frame, answer: &mut Answer) -> Result<()> {
        let data = frame.data.trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            return answer.complete();
        }
        if frame.event.as_deref() == Some("error") {
            let manners = answer.manners();
            return Err(manners.inside(data).unwrap_or_else(|| {
                manners.nonsense(&format!("{} sent an error event", manners.backend), data)
            }));
        }
        self.chunk(data, answer)
    }

    fn end(&mut self, answer: &mut Answer) -> Result<()> {
        if self.done {
            return Err(answer.wrong("the stream closed before its [DONE]"));
        }
        answer.complete()
    }

    fn body(&mut self, body: &[u8], answer: &mut Answer) -> Result<()> {
        self.chunk(body.trim_ascii(), answer)?;
        if !answer.has_reason() && !answer.has_events() {
            let manners = answer.manners();
            let what = format!("{} answered with success, and no answer", manners.backend);
            return Err(manners.nonsense(&what, body));
        }
        answer.complete()
    }
}
