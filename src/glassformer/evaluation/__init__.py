"""How good a model is, over a whole split, in numbers that can be compared.

    result.py          what a measurement is, whatever was measured
    likelihood.py      of text: loss, perplexity, bits per byte
    accuracy.py        of labels: how many are right, with the interval
    bleu.py            of translations
    error_analysis.py  where a model goes wrong
    comparison.py      runs side by side: a table;  comparison_page.py their curves, and a page of both
    budgets.py         whether they were trained alike;  verdict.py whether a baseline is better

Nothing here changes a model, and nothing knows where its runs lie.
"""
