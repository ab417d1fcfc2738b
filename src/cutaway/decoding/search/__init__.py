"""Search: which of all the tokens that could come next are taken: greedy, sampling, beams, drafts."""
