"""The command line, a file for each group of commands.

    main.py       the program, and the commands of training and measuring
    use.py        generate, translate, classify, fill
    look.py       look, import
    why.py        why
    tokenizer.py  tokenizer …;  tokens.py tokens for people to read
    plan.py       plan
    doctor.py     doctor
    bench.py      bench
    opening.py    runs, opened by commands
    console.py    results to standard output, everything else to standard error

Heavy imports stand inside the commands, so that --help is instant.
"""
