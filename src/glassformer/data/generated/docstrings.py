"""`docstrings`: a docstring of the standard library → what its module is about."""

from glassformer.data.examples import Example, Examples, divide_examples
from glassformer.data.generated import pydocs

HELD_OUT = 0.1  # share of validation, and of test
TOPICS = {
    "gui": "tkinter turtle",
    "concurrency": "asyncio multiprocessing threading concurrent queue selectors sched contextvars",
    "internet": "email mailbox http urllib imaplib smtplib nntplib ftplib ssl socketserver xmlrpc wsgiref "
    "telnetlib poplib ipaddress socket cgi webbrowser netrc",
    "numbers": "_pydecimal fractions statistics numbers random cmath datetime calendar _pydatetime zoneinfo",
    "language": "importlib inspect typing ast dis pydoc pdb bdb traceback symtable pickletools pickle enum "
    "functools dataclasses types abc contextlib tokenize code codeop runpy",
    "testing": "unittest doctest",
    "files": "tarfile zipfile pathlib shutil os tempfile glob _pyio gzip bz2 lzma filecmp fileinput",
    "markup": "xml html plistlib configparser json csv",
}


def examples() -> Examples:
    """Docstrings of functions and classes; the topic is that of their module, as TOPICS has it."""
    topic_of = {module: topic for topic, modules in TOPICS.items() for module in modules.split()}
    labelled: list[Example] = []
    for name, text in pydocs.documents():
        kind, _, module = name.partition(" ")
        topic = topic_of.get(module.split(".")[0])
        if kind != "module" or topic is None:
            continue
        for entry in text.split("\n\ndef ")[1:]:  # the first holds the module's own, which names its topic
            body = entry.partition("\n\n")[2].split("\nclass ")[0]
            words = " ".join(body.split())
            if len(words) >= 20:
                labelled.append((words[:600], topic))
    splits, rule = divide_examples(labelled, HELD_OUT, HELD_OUT)
    return Examples("docstrings", splits, rule)
