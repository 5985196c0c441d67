"""KV in 8 or 4 bits: a storey on top of `engine.kv`, which nothing enters without a codec."""
