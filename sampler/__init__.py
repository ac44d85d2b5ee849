"""What happens to logits: keys, noise, filters, penalties, logprobs, speculative accept."""
