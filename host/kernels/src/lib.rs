//! Quantization codecs and CPU kernels.
