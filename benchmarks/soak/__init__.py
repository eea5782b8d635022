"""A server at work for a long time: does anything grow without bound?"""
