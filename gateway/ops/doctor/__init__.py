"""What is wrong with a gateway and its data directory, what to do, and what can be repaired at once.

`finding.py` says what a check looks at and gives, `looking.py` has all checks, in the order of the report. The other
modules are the checks, by what they look at. `ethos doctor` asks them from outside, also where no gateway runs; the
running gateway asks them of itself.
"""
