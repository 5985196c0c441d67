"""KV computed again so that its bits depend on the tokens alone."""
