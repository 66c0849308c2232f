"""The command line, a file for each group of commands.

    main.py       the program, and the commands of training and measuring
    generate.py   generate
    use.py        translate, classify, fill
    chat.py       chat
    look.py       look, import
    why.py        why
    tokenizer.py  tokenizer …;  tokens.py tokens for people to read
    plan.py       plan
    doctor.py     doctor
    bench.py      bench
    serve.py      serve
    checks.py     what a training was told, checked before libraries load;  hints.py what was probably meant
    opening.py    runs, opened by commands
    answers.py    what models answer, for people to read;  drawing.py options of what draws
    console.py    results to standard output, everything else to standard error

Heavy imports stand inside the commands, so that --help is instant.
"""
