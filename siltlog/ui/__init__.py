"""The page at `/ui`: a client of the API, made of files that are served as they are but for their comments."""
