//! Live back-ends, routing, queues, generations.
