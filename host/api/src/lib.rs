//! HTTP dialects and control plane.
