"""The certificate: does this model, on this machine, keep the laws that decoding is built on? Measured, not promised.

    certificate = verify("models/en-de")         # `cutaway verify models/en-de`
    certificate.passed                           # nothing failed
    certificate.write(certificate_path("models/en-de"))

A law says that two ways of computing give the same: alone or in a batch, padded left or right, with a cache or without,
by a fused kernel or written out, here or in another library. Each entry holds what was measured, on which inputs, the
number, the tolerance and the verdict. A certificate names the files that it speaks of by their SHA-256, so that one of
other weights is known to be stale.
"""

from cutaway.certificate.certificate import Certificate, certificate_path, fingerprint, read_certificate
from cutaway.certificate.entry import Entry
from cutaway.certificate.verify import verify

__all__ = ["Certificate", "Entry", "certificate_path", "fingerprint", "read_certificate", "verify"]
