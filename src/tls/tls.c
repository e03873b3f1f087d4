// Connections: OpenSSL reads from and writes to two memory BIOs instead of a socket.
#include "base/errors.h"
#include "base/mem.h"
#include "tls/state.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <limits.h>

// ---- Life -------------------------------------------------------------------------------------

static int tls_no_memory(void) {
    return error_set(MR_ENOMEM, "no memory for TLS");
}

// An empty BIO means "try again", not the end: only the owner knows whether more will come.
static int tls_create(struct tls_context *c, struct tls **out) {
    struct tls *t = mem_alloc(sizeof *t);
    if (!t)
        return tls_no_memory();
    t->ssl = SSL_new((SSL_CTX *)c);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        BIO_free(t->in);
        BIO_free(t->out);
        SSL_free(t->ssl);
        mem_free(t);
        return tls_no_memory();
    }
    BIO_set_mem_eof_return(t->in, -1);
    SSL_set_bio(t->ssl, t->in, t->out);
    *out = t;
    return 0;
}

int tls_accept(struct tls_context *c, struct tls **out) {
    int err = tls_create(c, out);
    if (err >= 0)
        SSL_set_accept_state((*out)->ssl);
    return err;
}

// A certificate names hosts or addresses, which are checked in different ways.
static bool tls_expect_host(SSL *ssl, const char *host) {
    uint8_t raw[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, raw) == 1 || inet_pton(AF_INET6, host, raw) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int tls_connect(struct tls_context *c, const char *host, struct tls **out) {
    struct tls *t;
    int err = tls_create(c, &t);
    if (err < 0)
        return err;
    SSL_set_connect_state(t->ssl);
    if (!tls_expect_host(t->ssl, host)) {
        tls_destroy(t);
        return tls_no_memory();
    }
    *out = t;
    return 0;
}

void tls_destroy(struct tls *t) {
    if (!t)
        return;
    SSL_free(t->ssl);
    buffer_finish(&t->pending);
    mem_free(t);
}

// ---- Plain bytes ------------------------------------------------------------------------------

static int tls_failed(const struct tls *t) {
    long verified = SSL_get_verify_result(t->ssl);
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    if (verified != X509_V_OK)
        return error_set(MR_ENET, "its certificate is refused: %s",
                         X509_verify_cert_error_string(verified));
    return error_set(MR_ENET, "TLS has failed: %s", reason ? reason : "the reason is not known");
}

// The result of an OpenSSL call: a number of bytes, 0 for "try again", or MR_ENET.
static ptrdiff_t tls_result(const struct tls *t, int result) {
    if (result > 0)
        return result;
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return error_set(MR_ENET, "the other side has closed it");
    default:
        return tls_failed(t);
    }
}

static int at_most(size_t size) {
    return size < INT_MAX ? (int)size : INT_MAX;
}

int tls_receive(struct tls *t, const void *data, size_t size) {
    ERR_clear_error();
    return BIO_write(t->in, data, at_most(size)) == (int)size ? 0 : tls_no_memory();
}

int tls_handshake(struct tls *t) {
    ERR_clear_error();
    return (int)tls_result(t, SSL_do_handshake(t->ssl));
}

bool tls_is_up(const struct tls *t) {
    return SSL_is_init_finished(t->ssl);
}

ptrdiff_t tls_read(struct tls *t, void *to, size_t room) {
    ERR_clear_error();
    return tls_result(t, SSL_read(t->ssl, to, at_most(room)));
}

bool tls_peer_closed(const struct tls *t) {
    return SSL_get_shutdown(t->ssl) & SSL_RECEIVED_SHUTDOWN;
}

ptrdiff_t tls_write(struct tls *t, const void *data, size_t size) {
    ERR_clear_error();
    return tls_result(t, SSL_write(t->ssl, data, at_most(size)));
}

void tls_end(struct tls *t) {
    ERR_clear_error();
    if (tls_is_up(t))
        (void)SSL_shutdown(t->ssl); // does not wait for the peer's answer
}

// ---- Encrypted bytes --------------------------------------------------------------------------

mr_bytes tls_unsent(struct tls *t) {
    size_t more = BIO_ctrl_pending(t->out);
    if (more && buffer_reserve(&t->pending, more) == 0) {
        int moved = BIO_read(t->out, t->pending.data + t->pending.size, at_most(more));
        t->pending.size += moved > 0 ? (size_t)moved : 0;
    }
    return (mr_bytes){ t->pending.data ? t->pending.data + t->pending_sent : NULL,
                       t->pending.size - t->pending_sent };
}

void tls_sent(struct tls *t, size_t size) {
    t->pending_sent += size;
    if (t->pending_sent < t->pending.size) {
        t->pending_sent = buffer_compact(&t->pending, t->pending_sent);
        return;
    }
    buffer_finish(&t->pending); // idle connections hold no buffers
    t->pending_sent = 0;
}
