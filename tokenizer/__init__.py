"""Text to ids and back: vocabulary, templates, detokenizer, stops, reasoning, tool calls. Never touches MLX."""
