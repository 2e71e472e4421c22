//! Pins: which component runs.
