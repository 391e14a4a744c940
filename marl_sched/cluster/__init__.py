"""The truth: machines, queues, events, the exchange and every metric; no word of RL."""
