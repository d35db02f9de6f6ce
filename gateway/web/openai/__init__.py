"""`/v1`: the gateway's personalities as models of OpenAI's interface, for programs that speak it.

`door.py` lets callers in; the rest is loaded at the first request. `asked.py` reads what a program wants, `answers.py`
follows the answer, `completions.py` and `responses.py` are the two forms in which it is given.
"""
