// See digest.h. OpenSSL does the work.
#include "tls/digest.h"

#include "base/errors.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

int digest_of(mr_bytes bytes, uint8_t out[DIGEST_SIZE]) {
    if (EVP_Digest(bytes.data, bytes.size, out, NULL, EVP_sha256(), NULL) == 1)
        return 0;
    return error_set(MR_ENOMEM, "no memory for a digest");
}

bool digest_equal(const uint8_t a[DIGEST_SIZE], const uint8_t b[DIGEST_SIZE]) {
    return CRYPTO_memcmp(a, b, DIGEST_SIZE) == 0;
}
