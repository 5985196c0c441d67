"""The host: settings, the data folder, the two default models, and the parts put together."""
