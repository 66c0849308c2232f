"""A look inside: what every part of a model does to a text, derived from values that taps have recorded.

    trace.py        one forward pass, recorded (`record_trace`); gradients at any site
    edits.py        change any value on its way: ablate, patch, steer (a head: `3.z`, heads=2)

    maps.py         attention maps: raw, weighted by values, rolled out
    residual.py     the residual stream forward: what each part writes, and what that does to a logit
    gradients.py    the residual stream backward: what passes along the identity and what through the layers
    chain.py        the gradients of attention and feed-forward net, written out by the chain rule
    heads.py        what heads learn: scores for known kinds of heads, on sequences made for it
    relations.py    the same for words: from a pronoun to what it stands for, from a verb to its subject
    marked.py       the sentences for that, as a person marks them
    questions.py    what a head is needed for: answers with all heads, and with one switched off
    causal.py       what a value is needed for: patching, path patching, integrated gradients
    cost.py         what attention, feed-forward nets and recurrences cost, measured

    picture.py      what the patches of an image have to do with its label

    text_trace.py   all of this for one text, with the names of its tokens
    look.py         what `run.look` returns: that, and its report
    report.py       the report, an object for JSON
    report_text.py  shows it on a terminal;  map_text.py an attention map there;  html.py as a page
    plots.py        in pictures;  map_plots.py those of maps
    picture_text.py  an image on a terminal;  picture_plots.py with what heads look at drawn over it

Sites, the names of values such as `3.z`, are listed in models/tap.py. Nothing here changes a model or hooks
into it; everything is a function of what one call has recorded.
"""
