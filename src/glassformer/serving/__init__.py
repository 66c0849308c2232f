"""Runs over HTTP: in the words that OpenAI's clients speak, and in our own for what those have no word for.

    limits.py       every number that keeps a request small, in one place
    catalog.py      which runs are served, and by what name
    address.py      where the server listens, and by what names it may be called
    protocol.py     a connection: no slow head, no reader that never reads
    guard.py        a request: host, origin, token, size, time; whoever goes away stops the work
    models.py       runs in memory: loaded on demand, within a budget, reloaded without dropping anybody
    memory.py       what a run takes when it is loaded
    writer.py       the thread that turns one run's engine;  jobs.py the thread for the rest of its work
    bodies.py       what can be asked, typed;  asked.py and checked, before it is begun
    readers.py      texts for runs that read some, and never a path
    writing.py      texts on their way from the engine to a client;  texts.py as an answer, or event by event
    shapes.py       the shapes of OpenAI's answers;  replies.py JSON, tensors, events;  errors.py errors
    completions.py  /v1/completions;  chat.py chat;  embeddings.py embeddings;  tokens.py tokens
    answers.py      translations, labels, blanks;  looking.py looks inside;  records.py runs and their metrics
    health.py       /health and /metrics;  counts.py what is counted
    app.py          all of it together;  server.py as a process

FastAPI's bodies are pydantic models: this folder is the one besides config/ that imports it.
"""
