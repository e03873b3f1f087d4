// See digest.h. OpenSSL does the work.
#include "tls/digest.h"

#include "base/errors.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

int digest_of(mr_bytes bytes, uint8_t out[DIGEST_SIZE]) {
    if (EVP_Digest(bytes.data, bytes.size, out, NULL, EVP_sha256(), NULL) == 1)
        return 0;
    return error_set(MR_ENOMEM, "no memory for a digest");
}

int digest_sign(mr_bytes key, const mr_bytes *parts, size_t count, uint8_t out[DIGEST_SIZE]) {
    char sha256[] = "SHA256";
    OSSL_PARAM params[] = { OSSL_PARAM_construct_utf8_string("digest", sha256, 0),
                            OSSL_PARAM_construct_end() };
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = mac ? EVP_MAC_CTX_new(mac) : NULL;
    size_t size;
    bool good = context && EVP_MAC_init(context, key.data, key.size, params) == 1;
    for (size_t i = 0; good && i < count; i++)
        good = EVP_MAC_update(context, parts[i].data, parts[i].size) == 1;
    good = good && EVP_MAC_final(context, out, &size, DIGEST_SIZE) == 1;
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
    return good ? 0 : error_set(MR_ENOMEM, "no memory for a signature");
}

bool digest_equal(const uint8_t a[DIGEST_SIZE], const uint8_t b[DIGEST_SIZE]) {
    return CRYPTO_memcmp(a, b, DIGEST_SIZE) == 0;
}
