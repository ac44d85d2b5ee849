"""The thread that owns MLX, its scheduler, batch and caches, and the asyncio face in front of it."""
