"""The certificate: does this model, on this machine, give the same results in every way of running it?

    certificate = verify("models/en-de")         # `cutaway verify models/en-de`
    certificate.passed                           # no law failed
    certificate.write(certificate_path("models/en-de"))

A law says that two ways of computing give the same results: alone or in a batch, padded on the left or the right, with
or without a cache, by a fused kernel or by the formula, here or in another library. Each entry holds what was measured
on which inputs, the value, the tolerance and the verdict. A certificate records the SHA-256 of the model's files, so
that it is known to be stale when one of them changes.
"""

from cutaway.certificate.certificate import Certificate, certificate_path, fingerprint, read_certificate
from cutaway.certificate.entry import Entry
from cutaway.certificate.verify import verify

__all__ = ["Certificate", "Entry", "certificate_path", "fingerprint", "read_certificate", "verify"]
