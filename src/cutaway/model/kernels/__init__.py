"""The fast ways to the same numbers: in C++ for CPUs, in Triton for GPUs, in 8 bits. The parts choose among them."""
