// Digest: SHA-256, which is all that a server stores of a secret; and HMAC with it, for signatures.
#ifndef TLS_DIGEST_H
#define TLS_DIGEST_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

enum { DIGEST_SIZE = 32 };

// MR_EINVAL: this build has no OpenSSL; MR_ENOMEM.
int digest_of(mr_bytes, uint8_t out[DIGEST_SIZE]);

// HMAC-SHA256 of the parts, one behind the other. Errors as above.
int digest_sign(mr_bytes key, const mr_bytes *parts, size_t count, uint8_t out[DIGEST_SIZE]);

// Constant time: does not depend on where they differ.
bool digest_equal(const uint8_t a[DIGEST_SIZE], const uint8_t b[DIGEST_SIZE]);

#endif
