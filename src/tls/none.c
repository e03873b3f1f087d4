// Replaces the other files of this folder in a build without OpenSSL: creating a context or a
// digest fails, so the other functions are never called.
#include "tls/digest.h"
#include "tls/tls.h"

#include "base/errors.h"

#include <assert.h>

static int no_openssl(void) {
    return error_set(MR_EINVAL, "this build has no OpenSSL: TLS and tokens are not in it");
}

int digest_of(mr_bytes bytes, uint8_t out[DIGEST_SIZE]) {
    (void)bytes, (void)out;
    return no_openssl();
}

int digest_sign(mr_bytes key, const mr_bytes *parts, size_t count, uint8_t out[DIGEST_SIZE]) {
    (void)key, (void)parts, (void)count, (void)out;
    return no_openssl();
}

bool digest_equal(const uint8_t a[DIGEST_SIZE], const uint8_t b[DIGEST_SIZE]) {
    (void)a, (void)b;
    return false;
}

int tls_context_create(const struct tls_files *files, bool server, struct tls_context **out) {
    (void)files, (void)server, (void)out;
    return no_openssl();
}

void tls_context_destroy(struct tls_context *c) {
    assert(!c);
}

int tls_accept(struct tls_context *c, struct tls **out) {
    (void)c, (void)out;
    return no_openssl();
}

int tls_connect(struct tls_context *c, const char *host, struct tls **out) {
    (void)c, (void)host, (void)out;
    return no_openssl();
}

void tls_destroy(struct tls *t) {
    assert(!t);
}

int tls_receive(struct tls *t, const void *data, size_t size) {
    (void)t, (void)data, (void)size;
    return no_openssl();
}

int tls_handshake(struct tls *t) {
    (void)t;
    return no_openssl();
}

bool tls_is_up(const struct tls *t) {
    (void)t;
    return false;
}

ptrdiff_t tls_read(struct tls *t, void *to, size_t room) {
    (void)t, (void)to, (void)room;
    return no_openssl();
}

bool tls_peer_closed(const struct tls *t) {
    (void)t;
    return false;
}

ptrdiff_t tls_write(struct tls *t, const void *data, size_t size) {
    (void)t, (void)data, (void)size;
    return no_openssl();
}

void tls_end(struct tls *t) {
    assert(!t);
}

mr_bytes tls_unsent(struct tls *t) {
    (void)t;
    return (mr_bytes){ 0 };
}

void tls_sent(struct tls *t, size_t size) {
    (void)t, (void)size;
}
