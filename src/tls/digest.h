// Digest: SHA-256, which is what a server keeps of the secrets it gave out.
#ifndef TLS_DIGEST_H
#define TLS_DIGEST_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

enum { DIGEST_SIZE = 32 };

// MR_EINVAL: this build has no OpenSSL; MR_ENOMEM.
int digest_of(mr_bytes, uint8_t out[DIGEST_SIZE]);

// Takes as long whether and wherever they differ.
bool digest_equal(const uint8_t a[DIGEST_SIZE], const uint8_t b[DIGEST_SIZE]);

#endif
