"""The conversation: a question in, a saved and cited answer out."""
