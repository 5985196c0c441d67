"""The KV cache: tensors (pool), ownership (pages), conversations (session), policy (cache)."""
