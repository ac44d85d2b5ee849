"""What happens to weights: scale table, adapter formats, per-row layers, merging, measured strength."""
