//! The table of routes.
//!
//! Each module of routes returns its rows; [`crate::app`] makes the router of them, the guard reads
//! who may use a route from them ([`access`]), and [`crate::control::openapi`] makes the document of
//! them. A route that is not in the table does not exist.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    handler::Handler,
    http::Method,
    routing::{self, MethodRouter},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::state::AppState;

/// Who may use a route. In order: each one is stricter than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Everybody, without a key.
    Open,
    /// Every key; everybody where the host has no keys.
    Key,
    /// As [`Access::Key`], within the key's limits.
    Inference,
    /// Operator keys; everybody where the host has no keys.
    Operator,
    /// As [`Access::Operator`], and only where the switch for model changes is on.
    Change,
    /// Operator keys, even where everything else needs none: what runs changes here.
    Verb,
}

impl Access {
    /// The word for it in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Key => "any key",
            Self::Inference => "inference",
            Self::Operator => "operator",
            Self::Change => "operator, where models may be changed",
            Self::Verb => "operator, always",
        }
    }
}

/// Writes a type's schema and what it refers to into a document.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// One method on one path.
pub struct Endpoint {
    /// The method; GET answers HEAD too.
    pub method: Method,
    /// The path, with `{name}` for what varies.
    pub path: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Who may use it.
    pub access: Access,
    /// The query's type, where it takes one.
    pub query: Option<Shape>,
    /// The body's type, where it is one.
    pub takes: Option<Shape>,
    /// The answer's type, where it is one.
    pub gives: Option<Shape>,
    pub(crate) route: MethodRouter<AppState>,
}

fn shape<T: JsonSchema>() -> Shape {
    SchemaGenerator::subschema_for::<T>
}

impl Endpoint {
    fn new(
        method: Method,
        path: &'static str,
        summary: &'static str,
        route: MethodRouter<AppState>,
    ) -> Self {
        let access = Access::Inference;
        Self { method, path, summary, access, query: None, takes: None, gives: None, route }
    }

    /// GET, for inference unless told otherwise.
    pub fn get<H: Handler<T, AppState>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::GET, path, summary, routing::get(handler))
    }

    /// POST, for inference unless told otherwise.
    pub fn post<H: Handler<T, AppState>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::POST, path, summary, routing::post(handler))
    }

    /// DELETE, for inference unless told otherwise.
    pub fn delete<H: Handler<T, AppState>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::DELETE, path, summary, routing::delete(handler))
    }

    /// The same, for these alone.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The same, with the type of its query.
    #[must_use]
    pub fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(shape::<T>()), ..self }
    }

    /// The same, with the type of its body.
    #[must_use]
    pub fn takes<T: JsonSchema>(self) -> Self {
        Self { takes: Some(shape::<T>()), ..self }
    }

    /// The same, with the type of its answer.
    #[must_use]
    pub fn gives<T: JsonSchema>(self) -> Self {
        Self { gives: Some(shape::<T>()), ..self }
    }
}

/// Every route there is.
#[must_use]
pub fn endpoints() -> Vec<Endpoint> {
    [
        crate::ollama::routes(),
        crate::openai::routes(),
        crate::responses::routes(),
        crate::anthropic::routes(),
        crate::rerank::routes(),
        crate::tokens::routes(),
        crate::health::routes(),
        crate::control::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Who may use a path with a method. What is no route, and a method that a route does not take, needs a
/// key like any other, so that nobody without one can tell which routes there are.
#[must_use]
pub fn access(path: &str, method: &Method) -> Access {
    static TABLE: LazyLock<HashMap<&str, Vec<(Method, Access)>>> = LazyLock::new(|| {
        let mut table: HashMap<&str, Vec<_>> = HashMap::new();
        for endpoint in endpoints() {
            table.entry(endpoint.path).or_default().push((endpoint.method, endpoint.access));
        }
        table
    });
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let known = TABLE.get(path).and_then(|known| known.iter().find(|(one, _)| one == method));
    known.map_or(Access::Key, |(_, access)| *access)
}
