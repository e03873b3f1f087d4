// Contexts: certificates loaded from files, and the requirements for every connection.
#include "base/errors.h"
#include "tls/state.h"

#include <openssl/err.h>

// For TLS 1.2; all ciphers of 1.3 are allowed.
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

static int tls_file_refused(const char *what, const char *file) {
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;
    return error_set(MR_EINVAL, "the %s %s cannot be used: %s", what, file,
                     why ? why : "the reason is not known");
}

// A key with a passphrase is refused: there is no user to enter it.
static int no_passphrase(char *to, int room, int writing, void *arg) {
    (void)to, (void)room, (void)writing, (void)arg;
    return -1;
}

static int context_load_own(SSL_CTX *c, const struct tls_files *f) {
    if (!f->cert && !f->key)
        return 0;
    if (!f->cert || !f->key)
        return error_set(MR_EINVAL, "a certificate and its key belong together: %s is missing",
                         f->cert ? "the key" : "the certificate");
    SSL_CTX_set_default_passwd_cb(c, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(c, f->cert) != 1)
        return tls_file_refused("certificate", f->cert);
    if (SSL_CTX_use_PrivateKey_file(c, f->key, SSL_FILETYPE_PEM) != 1)
        return tls_file_refused("key", f->key);
    return 0;
}

static int context_load_trust(SSL_CTX *c, const struct tls_files *f, bool server) {
    if (f->ca && SSL_CTX_load_verify_file(c, f->ca) != 1)
        return tls_file_refused("file of authorities", f->ca);
    if (!server) {
        SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
        if (!f->ca && SSL_CTX_set_default_verify_paths(c) != 1)
            return tls_file_refused("authorities of", "the system");
    } else if (f->ca) {
        SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        SSL_CTX_set_client_CA_list(c, SSL_load_client_CA_file(f->ca)); // a hint to clients
    }
    return 0;
}

// SSL_MODE_RELEASE_BUFFERS: idle connections hold no buffers.
static void context_set_up(SSL_CTX *c) {
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(c, CIPHERS);
    // Without tickets there is no resumption, which would not check a client's certificate again.
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(c, 0);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
}

int tls_context_create(const struct tls_files *files, bool server, struct tls_context **out) {
    ERR_clear_error();
    SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!c)
        return error_set(MR_ENOMEM, "no memory for TLS");
    context_set_up(c);
    int err = context_load_own(c, files);
    if (err >= 0)
        err = context_load_trust(c, files, server);
    if (err < 0) {
        SSL_CTX_free(c);
        return err;
    }
    *out = (struct tls_context *)c; // struct tls_context is an SSL_CTX
    return 0;
}

void tls_context_destroy(struct tls_context *c) {
    SSL_CTX_free((SSL_CTX *)c);
}
