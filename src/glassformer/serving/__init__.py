"""Runs over HTTP: in the words that OpenAI's clients speak, and in our own for what those have no word for.

    limits       every number that keeps a request small, in one place
    catalog      which runs are served, and by what name
    address      where the server listens, and by what names it may be called
    protocol     a connection: no slow head, no reader that never reads
    guard        a request: host, origin, token, size, time; whoever goes away stops the work
    models       runs in memory: loaded on demand, within a budget, reloaded without dropping anybody
    writer       the thread that turns one run's engine         jobs   the thread for the rest of its work
    bodies       what can be asked, typed                       asked  and checked, before it is begun
    writing      texts on their way from the engine to a client, in the shapes of OpenAI's answers
    completions, chat, embeddings, tokens, answers, looking, records, health     the routes
    app          all of it together                             server  as a process

FastAPI's bodies are pydantic models: this folder is the one besides config/ that imports it.
"""
