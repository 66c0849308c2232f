"""What tests the machine and not a model.

    doctor.py  whether this machine computes what it should
    bench/     speed, beside the peers

The commands of the same names print what these return.
"""
