"""What is wrong with a host: one look, then judgement. `examine` is the verb."""
