// Stores in NATS servers that want a token, TLS or credentials, and in one without JetStream.
#include "support/nats_support.h"

#include "log/stream.h"

// Settings of the whole server follow the end of those of JetStream.
#define TOKEN_WANTED "}\nauthorization { token: s3cret"
#define TLS_WANTED                                                                                 \
    "}\ntls { cert_file: '%1$s/cert.pem', key_file: '%1$s/key.pem', ca_file: '%1$s/cert.pem', "    \
    "verify: true"

struct secure_fixture {
    struct nats_servers servers;
    char url[512];
};

static struct stream_nats_options with_url(struct secure_fixture *f, const char *user,
                                           const char *options) {
    snprintf(f->url, sizeof f->url, "nats://%s127.0.0.1:%u%s", user, f->servers.nodes[0].port,
             options);
    return (struct stream_nats_options){ .url = f->url, .cluster = "main" };
}

// Makes a cluster and reads what was written.
static void expect_works(struct secure_fixture *f, const char *user, const char *options) {
    struct stream_nats_options o = with_url(f, user, options);
    struct stream_nats_cluster found;
    nats_cluster_make(&o, 2);
    if (stream_nats_look(&o, &found) != STREAM_DONE)
        fail_msg("%s", error_text());
    assert_int_equal(found.shards, 2);
}

// The message names the server, and no secret.
static void expect_refused(struct secure_fixture *f, const char *user, const char *options) {
    struct stream_nats_options o = with_url(f, user, options);
    struct stream_nats_cluster found;
    assert_int_equal(stream_nats_look(&o, &found), STREAM_UNAVAILABLE);
    assert_non_null(strstr(error_text(), "127.0.0.1"));
    assert_null(strstr(error_text(), "s3cret"));
    assert_null(strstr(error_text(), "guess"));
}

static void U10_a_token_opens_a_store(void **state) {
    struct secure_fixture f;
    (void)state;
    nats_servers_start(&f.servers, 1, TOKEN_WANTED);
    expect_refused(&f, "", "");
    expect_refused(&f, "guess@", "");
    expect_refused(&f, "user:guess@", "");
    expect_refused(&f, "", "?creds=/nowhere/creds");
    expect_works(&f, "s3cret@", "");
    nats_servers_stop(&f.servers);
}

static void certificate_make(const char *dir) {
    char key[64], certificate[64];
    int status;
    snprintf(key, sizeof key, "%s/key.pem", dir);
    snprintf(certificate, sizeof certificate, "%s/cert.pem", dir);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(open("/dev/null", O_RDWR), STDERR_FILENO);
        execlp("openssl", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate,
               "-days", "30", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
               (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void U10_a_store_is_reached_over_TLS(void **state) {
    struct secure_fixture f;
    char dir[] = "/tmp/millrace-test-XXXXXX", settings[400], options[200];
    (void)state;
    assert_non_null(mkdtemp(dir));
    certificate_make(dir);
    snprintf(settings, sizeof settings, TLS_WANTED, dir);
    nats_servers_start(&f.servers, 1, settings);
    expect_refused(&f, "", "");
    expect_refused(&f, "", "?tls"); // its certificate is not trusted
    expect_refused(&f, "", "?ca=/nowhere/ca.pem");
    expect_refused(&f, "", "?cert=/nowhere/cert.pem&key=/nowhere/key.pem");
    snprintf(options, sizeof options, "?ca=%s/cert.pem", dir); // it wants one from its clients, too
    expect_refused(&f, "", options);
    snprintf(options, sizeof options, "?ca=%s/cert.pem&cert=%s/cert.pem&key=%s/key.pem", dir, dir,
             dir);
    expect_works(&f, "", options);
    nats_servers_stop(&f.servers);
    folder_remove(dir);
}

static void a_server_without_JetStream_is_refused_with_the_setting(void **state) {
    struct secure_fixture f;
    struct stream_nats_cluster found;
    (void)state;
    nats_servers_start(&f.servers, 1, ", enabled: false");
    struct stream_nats_options o = with_url(&f, "", "");
    assert_int_equal(stream_nats_look(&o, &found), MR_EINVAL);
    assert_non_null(strstr(error_text(), "nats-server -js"));
    nats_servers_stop(&f.servers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U10_a_token_opens_a_store),
        cmocka_unit_test(U10_a_store_is_reached_over_TLS),
        cmocka_unit_test(a_server_without_JetStream_is_refused_with_the_setting),
    };
    if (!nats_is_installed())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
