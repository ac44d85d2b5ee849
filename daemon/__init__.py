"""HTTP: configuration, schemas, handlers, replies, server-sent events, errors, health. Never touches MLX."""
