//! Model files, tokenizers, chat templates and the local store.
