"""The parts of the Transformer, one file each, in the order of the lecture.

embeddings → positions → masks → attention → feed_forward → norms → blocks → encoder, decoder → heads;
`cache` keeps keys and values between calls, `tap` lets you read or replace any named value, and `kernels` computes the
same numbers faster.
"""
