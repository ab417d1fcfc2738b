"""The parts of the Transformer, one file each, in the order of the lecture.

embeddings → positions → masks → attention → feed_forward → norms → blocks → encoder, decoder → heads;
`cache` remembers keys and values between calls, `tap` lets people look at any value on its way.
"""
