"""How much memory KV takes, worked out from a model's sizes. The engine itself does not need it."""
