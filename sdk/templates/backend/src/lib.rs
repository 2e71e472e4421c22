//! A back-end that answers with the words of the last message, one at a time. Put in its place
//! what serves your models: `gristmill_plugin::upstream` reaches a server the grant names,
//! `gristmill_plugin::engine` the host's own engine.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The plugin.
pub struct Plugin;

gristmill_plugin::export_backend!(Plugin);

impl Backend for Plugin {
    fn describe() -> Descriptor {
        let version = env!("CARGO_PKG_VERSION");
        let mut descriptor = Descriptor::new("{{name}}", "{{name}}", version, "library");
        descriptor.claims = vec![Claim::supported("inference.text")];
        descriptor
    }

    fn models() -> Result<Vec<ModelInfo>> {
        Ok(vec![ModelInfo::new("{{name}}")])
    }

    fn generate(request: Request) -> Result<impl Generation> {
        let prompt = match &request.prompt {
            Prompt::Chat(messages) => messages.last().map(Message::whole_text).unwrap_or_default(),
            Prompt::Text(text) => text.clone(),
            _ => return Err(Error::unsupported("this back-end takes messages and text")),
        };
        let mut events: VecDeque<Event> =
            prompt.split_inclusive(' ').map(|word| Event::Text(word.to_owned())).collect();
        events.push_back(Event::finish("stop"));
        Ok(Answer(events))
    }
}

/// The events that are still to come.
struct Answer(VecDeque<Event>);

impl Generation for Answer {
    fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let count = self.0.len().min(max as usize);
        Ok((count > 0).then(|| self.0.drain(..count).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_words_and_an_end() {
        let request = Request::new("{{name}}", Prompt::Text("so be it".to_owned()));
        let mut answer = Plugin::generate(request).unwrap();
        assert_eq!(answer.next(1).unwrap(), Some(vec![Event::Text("so ".to_owned())]));
        assert_eq!(answer.next(9).unwrap().unwrap().last(), Some(&Event::finish("stop")));
        assert_eq!(answer.next(9).unwrap(), None);
    }
}
