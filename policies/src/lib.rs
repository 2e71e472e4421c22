//! Plugin grants and limits.
