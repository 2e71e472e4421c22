//! `/tokenize`, `/detokenize`, `/apply-template`: what a model reads and writes, in the shapes of
//! llama-server and of vLLM, and the count of a chat's tokens.
//!
//! What only a native engine can say (the beginning of text, a rendered conversation) is refused for
//! models of a bridge, by field.

use std::collections::HashMap;

use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use gristmill_core::{
    Result as Domain,
    request::{Prompt, Request as Generation},
};
use gristmill_router::Plan;
use serde_json::{Map, Value, json};

use crate::{
    body::Posted,
    drive::json_answer,
    endpoint::Endpoint,
    error::Failure,
    fields::{Fields, nothing_left, refused, wrong},
    models,
    openai::decode,
    state::AppState,
};

type Answer = Result<Response, Failure>;

/// Most tokens whose pieces are told one by one: each is a call of its own to the back-end.
const MOST_PIECES: usize = 1 << 16;

/// Every route.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    let counts = "How many tokens a model would read";
    vec![
        Endpoint::post("/tokenize", "The tokens of a text or a conversation", tokenize),
        Endpoint::post("/detokenize", "The text of tokens", detokenize),
        Endpoint::post("/apply-template", "The text a model would read", apply_template),
        Endpoint::post("/v1/chat/completions/input_tokens", counts, input_tokens),
    ]
}

/// A decoded `/tokenize`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tokenize {
    /// The model, as the client spells it.
    pub model: String,
    /// What to cut into tokens.
    pub what: What,
    /// Each token as an object with its piece, as llama-server has it.
    pub pieces: bool,
    /// The pieces as a list of their own, as vLLM has it.
    pub strings: bool,
}

/// What to cut into tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A text alone; whether spellings of special tokens become those tokens.
    Text(String, bool),
    /// What would be read before an answer: a text with its beginning, or a conversation.
    Prompt(Box<Generation>),
}

/// Reads `/tokenize`: `content` (llama-server), `prompt` or `messages` (vLLM).
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn decode_tokenize(body: Value, id: &str) -> Domain<Tokenize> {
    let mut fields = Fields::body(body)?;
    let pieces = fields.flag("with_pieces")?.unwrap_or(false);
    let strings = fields.flag("return_token_strs")?.unwrap_or(false);
    if fields.has("messages") {
        if fields.flag("add_special_tokens")? == Some(true) {
            let what = "does not go with messages: the template writes special tokens itself";
            return Err(refused("add_special_tokens", what));
        }
        let (model, request) = chat(fields, id)?;
        return Ok(Tokenize { model, what: What::Prompt(Box::new(request)), pieces, strings });
    }
    let model = fields.required("model")?;
    let (text, special, field) = match (fields.string("content")?, fields.string("prompt")?) {
        (Some(text), None) => (text, fields.flag("add_special")?.unwrap_or(false), "add_special"),
        (None, Some(text)) => {
            let special = fields.flag("add_special_tokens")?.unwrap_or(true);
            (text, special, "add_special_tokens")
        }
        (Some(_), Some(_)) => return Err(wrong("prompt", "and content are the same; send one")),
        (None, None) => return Err(wrong("content", "is required")),
    };
    let parse = fields.flag("parse_special")?.unwrap_or(true);
    nothing_left(&fields)?;
    let what = match (special, parse) {
        (false, parse) => What::Text(text, parse),
        (true, true) => {
            What::Prompt(Box::new(Generation::new(id, model.clone(), Prompt::Text(text))))
        }
        (true, false) => {
            return Err(refused(field, "does not go with parse_special set to false"));
        }
    };
    Ok(Tokenize { model, what, pieces, strings })
}

/// A chat request, as far as it is read before an answer.
fn chat(mut fields: Fields, id: &str) -> Domain<(String, Generation)> {
    if fields.flag("add_generation_prompt")? == Some(false) {
        let what = "must be true: a prompt ends where the answer begins";
        return Err(refused("add_generation_prompt", what));
    }
    let mut call = decode::chat(fields.into_value(), id)?;
    call.requests.truncate(1);
    let request = call.requests.pop().ok_or_else(|| wrong("n", "must be at least 1"))?;
    Ok((call.model, request))
}

async fn tokenize(Posted { state, account, body }: Posted) -> Answer {
    let call = decode_tokenize(body, &account.id)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let tokens = match call.what {
        What::Text(text, special) => state.router.tokenize(&plan, &text, special).await?,
        What::Prompt(request) => state.router.prompt(&plan, *request).await?.0,
    };
    let mut answer = Map::new();
    answer.insert("tokens".into(), json!(tokens));
    answer.insert("count".into(), json!(tokens.len()));
    answer.insert("max_model_len".into(), json!(plan.info().context_native));
    if call.pieces || call.strings {
        let pieces = pieces(&state, &plan, &tokens).await?;
        let piece = |token: &u32| pieces.get(token).map(Vec::as_slice).unwrap_or_default();
        if call.pieces {
            // Text where it is text, else its bytes.
            let value = |bytes: &[u8]| match std::str::from_utf8(bytes) {
                Ok(text) => json!(text),
                Err(_) => json!(bytes),
            };
            let one = |token| json!({ "id": token, "piece": value(piece(token)) });
            answer.insert("tokens".into(), tokens.iter().map(one).collect());
        }
        if call.strings {
            let one = |token| String::from_utf8_lossy(piece(token)).into_owned();
            answer.insert("token_strs".into(), tokens.iter().map(one).collect());
        }
    }
    Ok(json_answer(Value::Object(answer), &plan.provenance(), &[]))
}

/// The bytes of each token, asked once for each that occurs.
async fn pieces(state: &AppState, plan: &Plan, tokens: &[u32]) -> Domain<HashMap<u32, Vec<u8>>> {
    let mut pieces = HashMap::new();
    for &token in tokens {
        if pieces.contains_key(&token) {
            continue;
        }
        if pieces.len() == MOST_PIECES {
            let what =
                format!("holds more than {MOST_PIECES} different tokens; ask without pieces");
            return Err(wrong("content", what));
        }
        pieces.insert(token, state.router.detokenize(plan, &[token]).await?);
    }
    Ok(pieces)
}

async fn detokenize(Posted { state, account, body }: Posted) -> Answer {
    let mut fields = Fields::body(body)?;
    let model = fields.required("model")?;
    let items = fields.array("tokens")?.ok_or_else(|| wrong("tokens", "is required"))?;
    nothing_left(&fields)?;
    let plan = models::plan(&state, &account, &model).await?;
    let bytes = if items.is_empty() {
        Vec::new()
    } else {
        state.router.detokenize(&plan, &decode::tokens("tokens", items)?).await?
    };
    let text = String::from_utf8_lossy(&bytes);
    // Under both servers' names.
    let mut answer = Map::new();
    answer.insert("content".into(), json!(text));
    answer.insert("prompt".into(), json!(text));
    if std::str::from_utf8(&bytes).is_err() {
        answer.insert("lossy".into(), json!(true));
        answer.insert("bytes".into(), json!(STANDARD.encode(&bytes)));
    }
    Ok(json_answer(Value::Object(answer), &plan.provenance(), &[]))
}

async fn apply_template(posted: Posted) -> Answer {
    read(posted, |_, text| json!({ "prompt": text })).await
}

async fn input_tokens(posted: Posted) -> Answer {
    let count = |tokens: Vec<u32>, _| json!({ "object": "response.input_tokens", "input_tokens": tokens.len() });
    read(posted, count).await
}

/// What the model would read for a chat.
async fn read(
    Posted { state, account, body }: Posted,
    say: impl FnOnce(Vec<u32>, String) -> Value,
) -> Answer {
    let (model, request) = chat(Fields::body(body)?, &account.id)?;
    let plan = models::plan(&state, &account, &model).await?;
    let (tokens, text) = state.router.prompt(&plan, request).await?;
    Ok(json_answer(say(tokens, text), &plan.provenance(), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(extra: Value) -> Domain<Tokenize> {
        let mut body = json!({ "model": "m" });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        decode_tokenize(body, "r")
    }

    #[test]
    fn each_servers_form_has_its_own_default() {
        let text = |special| What::Text("x".into(), special);
        let prompt = What::Prompt(Box::new(Generation::new("r", "m", Prompt::Text("x".into()))));
        for (extra, what) in [
            (json!({ "content": "x" }), text(true)),
            (json!({ "content": "x", "parse_special": false }), text(false)),
            (json!({ "content": "x", "add_special": true }), prompt.clone()),
            (json!({ "prompt": "x", "add_special_tokens": false }), text(true)),
            (json!({ "prompt": "x" }), prompt),
        ] {
            assert_eq!(with(extra.clone()).unwrap().what, what, "{extra}");
        }
        let chat = json!({ "messages": [{ "role": "user", "content": "x" }],
            "add_generation_prompt": true, "add_special_tokens": false, "return_token_strs": true });
        let call = with(chat).unwrap();
        assert!(
            matches!(&call.what, What::Prompt(request) if matches!(request.prompt, Prompt::Chat(_)))
        );
        assert!(call.strings && !call.pieces);
    }

    #[test]
    fn what_cannot_be_said_is_refused_by_name() {
        let message = json!([{ "role": "user", "content": "x" }]);
        for (extra, field) in [
            (json!({}), "content"),
            (json!({ "content": 5 }), "content"),
            (json!({ "content": "x", "prompt": "x" }), "prompt"),
            (json!({ "content": "x", "add_special": true, "parse_special": false }), "add_special"),
            (json!({ "content": "x", "more": 1 }), "more"),
            (
                json!({ "messages": message, "add_generation_prompt": false }),
                "add_generation_prompt",
            ),
            (json!({ "messages": message, "add_special_tokens": true }), "add_special_tokens"),
            (json!({ "messages": [] }), "messages"),
        ] {
            let error = with(extra.clone()).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{extra}");
        }
    }
}
