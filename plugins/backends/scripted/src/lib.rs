//! Answers from a script: whatever a client, a test or the router has to see, without a model.
//!
//! The prompt is the script: the text of the last user message, the text, the text before the gap,
//! or tokens (one per byte). If its first line is no command, the answer is the prompt, word by
//! word, under `max-tokens` and `stop`. A script is played as it stands, whatever the request says.
//!
//! | line | event |
//! |---|---|
//! | `text TEXT` | text; in every TEXT `\n`, `\t` and `\\` are what they are in Rust |
//! | `reasoning TEXT` | reasoning |
//! | `bytes HEX` | text from bytes: whole characters now, the rest with the next `bytes` |
//! | `token ID LOGPROB TEXT` | text, and its log probability |
//! | `tool ID NAME ARGUMENTS` | a whole tool call |
//! | `tool-start ID NAME`, `tool-arguments TEXT`, `tool-end` | the same in pieces |
//! | `request` | text: the request as JSON |
//! | `usage PROMPT COMPLETION [CACHED [REASONING]]` | token counts |
//! | `timings QUEUE LOAD PREFILL DECODE` | microseconds |
//! | `other NAME VALUE` | an event of a later contract |
//! | `finish REASON [STOP]` | the end, exactly so |
//! | `flush` | what follows comes with a later `next` |
//! | `wait MS` | the same, and so much later (at most 500; it costs CPU time) |
//! | `repeat N LINE` | the line N times |
//! | `error CODE [retry=MS] MESSAGE` | a failure; as the first line, before the stream begins |
//! | `trap` | a trap; as the first line, before the stream begins |
//! | `hang` | nothing, for ever |
//! | `end` | the end without `finish`, which the contract forbids |
//!
//! A script that does not end itself gets `usage` (if it told none) and `finish stop`, or
//! `tool-calls` if it called a tool. `flush` as the first line makes a following `error` or `trap`
//! one inside the stream. What the contract forbids is played too: the host has to notice.
#![cfg_attr(target_arch = "wasm32", no_std)]

mod answers;
mod play;
mod request;
mod script;

use gristmill_plugin::{extra, prelude::*};

use play::Player;

/// The model it serves.
const MODEL: &str = "scripted";
/// Words it takes in a prompt to echo or a text to embed.
const CONTEXT: u32 = 512;

/// The back-end.
#[derive(Debug)]
pub struct Scripted;

gristmill_plugin::export_backend!(Scripted);

impl Backend for Scripted {
    fn describe() -> Descriptor {
        let version = env!("CARGO_PKG_VERSION");
        let mut descriptor = Descriptor::new(MODEL, MODEL, version, "library");
        descriptor.claims = claims();
        descriptor
    }

    fn models() -> Result<Vec<ModelInfo>> {
        let mut model = ModelInfo::new(MODEL);
        model.names.push("scripted:latest".to_owned());
        model.family = Some(MODEL.to_owned());
        model.context_native = Some(CONTEXT);
        model.claims = claims();
        Ok(vec![model])
    }

    fn generate(request: Request) -> Result<impl Generation> {
        known(&request.model)?;
        if let Some(script) = extra(&request.extras, "script") {
            return Player::of_script(script, &request);
        }
        let prompt = match &request.prompt {
            Prompt::Chat(messages) => messages
                .iter()
                .rev()
                .find(|message| message.role == Role::User)
                .map(Message::whole_text)
                .unwrap_or_default(),
            Prompt::Text(text) | Prompt::Infill((text, _)) => text.clone(),
            Prompt::Tokens(tokens) => {
                let bytes = answers::detokenize(tokens)?;
                String::from_utf8(bytes)
                    .map_err(|_| Error::invalid_request("the tokens are no UTF-8"))?
            }
        };
        if script::is_script(&prompt) {
            Player::of_script(&prompt, &request)
        } else {
            Player::of_echo(&prompt, &request)
        }
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings> {
        known(&request.model)?;
        answers::embed(&request)
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>> {
        known(&request.model)?;
        Ok(answers::rerank(&request))
    }

    fn tokenize(model: &str, text: &str, _special: bool) -> Result<Vec<u32>> {
        known(model)?;
        Ok(text.bytes().map(u32::from).collect())
    }

    fn detokenize(model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        known(model)?;
        answers::detokenize(tokens)
    }
}

fn known(model: &str) -> Result<()> {
    if model == MODEL || model == "scripted:latest" {
        return Ok(());
    }
    Err(Error::not_found(format!("the scripted back-end has no model {model}, only {MODEL}"))
        .with("model", model))
}

/// What it does of itself, and what a script can make it do: it plays that whatever the request says,
/// so the claim has a condition that no request meets by asking.
fn claims() -> Vec<Claim> {
    let mut claims: Vec<Claim> = ["inference.text", "embeddings", "reranking", "streaming.content"]
        .map(Claim::supported)
        .into();
    claims.extend(
        [
            "reasoning.control",
            "tools.calling",
            "tools.streaming",
            "tools.parallel",
            "structured_output",
            "multimodal.vision",
            "multimodal.audio",
            "streaming.reasoning",
            "streaming.tool_arguments",
            "logprobs",
        ]
        .map(|name| Claim::conditional(name, "script")),
    );
    let last = "the prompt is the last user message alone";
    claims.push(Claim::unsupported("inference.chat", "script", last));
    // Tokens are bytes when they are asked for and words when they are counted.
    claims.push(Claim::conditional("tokenize", "bytes"));
    claims.push(Claim::valued("context.native_max", CONTEXT.to_string()));
    claims
}
