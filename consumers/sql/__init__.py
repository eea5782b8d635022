"""SQL over topics at a server: a query runs in a process of its own, which reaches nothing but what it is given."""
