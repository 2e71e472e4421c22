//! A shelf of models, and what is in memory.

use std::{
    ops::ControlFlow,
    sync::Mutex,
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use gristmill_core::{
    Error, Result,
    capability::{Claim, ModelInfo},
    program::{Metadata, TensorInfo, Value as Datum},
    request::{Part, Prompt, Request},
};
use gristmill_engine::runtime::Loaded;
use gristmill_router::{Card, Models, Progress, Record, Residency, Step};

/// Stored models: `tiny`, also called `TinyModel` and `tiny:135m`.
pub struct Shelf {
    records: Mutex<Vec<Record>>,
    /// Whether they are gone once they are listed.
    leaving: bool,
}

impl Shelf {
    pub fn leaving() -> Self {
        Self { leaving: true, ..Self::default() }
    }
}

impl Default for Shelf {
    fn default() -> Self {
        let info = ModelInfo {
            id: "tiny".into(),
            names: vec!["TinyModel".into(), "tiny:135m".into()],
            digest: Some("sha256:abcd".into()),
            family: Some("llama".into()),
            quantization: Some("Q4_1".into()),
            parameters: Some(134_515_008),
            size_bytes: Some(98_000_000),
            context_native: Some(2048),
            claims: vec![Claim::supported("inference.text"), Claim::supported("tools.calling")],
            extras: Vec::new(),
        };
        let record = Record {
            info,
            modified: Some(UNIX_EPOCH + Duration::from_millis(1_700_000_000_250)),
            format: Some("gguf".into()),
            embedding_length: Some(576),
            ..Record::default()
        };
        Self { records: Mutex::new(vec![record]), leaving: false }
    }
}

#[async_trait]
impl Models for Shelf {
    async fn list(&self) -> Result<Vec<Record>> {
        let mut records = self.records.lock().unwrap();
        Ok(if self.leaving { std::mem::take(&mut *records) } else { records.clone() })
    }

    async fn show(&self, id: &str) -> Result<Card> {
        let record =
            self.records.lock().unwrap().iter().find(|r| r.info.id == id).cloned().unwrap();
        let keys = vec![
            ("general.architecture".to_owned(), Datum::Text("llama".into())),
            ("llama.context_length".to_owned(), Datum::Int(2048)),
            ("tokenizer.ggml.tokens".to_owned(), Datum::Long(49152)),
        ];
        let tensors = vec![TensorInfo {
            name: "output_norm.weight".into(),
            shape: vec![576],
            element: "F32".into(),
        }];
        Ok(Card {
            record,
            metadata: Some(Metadata { architecture: "llama".into(), keys, tensors }),
            template: Some("{{ messages }}".into()),
            parameters: vec![("stop".into(), "\"<|im_end|>\"".into())],
            ..Card::default()
        })
    }

    async fn pull(&self, name: &str, progress: Progress) -> Result<Record> {
        if name == "absent" {
            return Err(Error::not_found("pull: no source has 'absent'"));
        }
        let step = |status: &str, completed| Step {
            status: status.into(),
            digest: None,
            total: Some(10),
            completed: Some(completed),
        };
        for completed in [5, 10] {
            if let ControlFlow::Break(()) = progress(step("downloading", completed)) {
                return Err(Error::new(gristmill_core::Code::Cancelled, "stopped"));
            }
        }
        let record = Record {
            info: ModelInfo { id: name.into(), ..ModelInfo::default() },
            ..Record::default()
        };
        self.records.lock().unwrap().push(record.clone());
        Ok(record)
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let mut records = self.records.lock().unwrap();
        for record in records.iter_mut() {
            record.info.names.retain(|known| known != name);
        }
        records.retain(|record| record.info.id != name);
        Ok(())
    }

    async fn copy(&self, source: &str, destination: &str) -> Result<()> {
        let mut records = self.records.lock().unwrap();
        let record = records
            .iter_mut()
            .find(|r| r.info.id == source || r.info.names.iter().any(|name| name == source))
            .unwrap();
        record.info.names.push(destination.into());
        Ok(())
    }
}

/// What is in memory: what was loaded.
#[derive(Default)]
pub struct Memory(Mutex<Vec<String>>);

#[async_trait]
impl Residency for Memory {
    fn loaded(&self) -> Vec<Loaded> {
        let loaded = |id: &String| Loaded {
            id: id.clone(),
            digest: "sha256:abcd".into(),
            memory: 100,
            context: 2048,
            active: 0,
        };
        self.0.lock().unwrap().iter().map(loaded).collect()
    }

    async fn load(&self, id: &str) -> Result<()> {
        self.0.lock().unwrap().push(id.into());
        Ok(())
    }

    /// Renders `role: text` lines with `=`, and words in front for tools; a token is a byte.
    async fn prompt(&self, request: Request) -> Result<(Vec<u32>, String)> {
        let mut text = format!("<{}>", request.model);
        for tool in &request.tools {
            text.push_str(&format!("[{}]", tool.name));
        }
        match &request.prompt {
            Prompt::Chat(messages) => {
                for message in messages {
                    let said = message.content.iter().map(|part| match part {
                        Part::Text(text) => text.as_str(),
                        _ => "?",
                    });
                    let said: String = said.collect();
                    text.push_str(&format!("{}={said};", message.role.as_str()));
                }
            }
            Prompt::Text(prompt) => text.push_str(prompt),
            _ => return Err(Error::unsupported("no such prompt")),
        }
        Ok((text.bytes().map(u32::from).collect(), text))
    }

    async fn unload(&self, id: &str) -> bool {
        let mut loaded = self.0.lock().unwrap();
        let before = loaded.len();
        loaded.retain(|known| known != id);
        loaded.len() < before
    }
}
