// The file of tokens as `millrace auth` changes it: whole or not at all, and never with a secret.
#include "support/log_support.h"

#include "server/auth.h"
#include "server/auth_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct token_fixture {
    char folder[32], path[64], beside[64];
};

static int setup(void **state) {
    struct token_fixture *f = calloc(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/tokens", f->folder);
    snprintf(f->beside, sizeof f->beside, "%s/tokens.new", f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct token_fixture *f = *state;
    folder_remove(f->folder);
    free(f);
    return 0;
}

static void file_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

// Until the next call.
static const char *file_text(const char *path) {
    static char text[2048];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return "";
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    return text;
}

static struct auth_words words(const char *name) {
    return (struct auth_words){ .name = mr_str(name),
                                .roles = mr_str("push,work"),
                                .patterns = mr_str("mail*") };
}

static int add(const struct token_fixture *f, struct auth_words w) {
    char secret[AUTH_SECRET + 1];
    return auth_add(f->path, &w, secret);
}

// U10: the secret opens the token, and is not in the file; other lines stay as they are.
static void U10_a_token_is_added_and_removed(void **state) {
    struct token_fixture *f = *state;
    char secret[AUTH_SECRET + 1], before[4096];
    struct auth_words ann = words("ann"), web = words("web");
    struct auth *a;
    assert_int_equal(auth_add(f->path, &ann, secret), 0);
    snprintf(before, sizeof before, "%s\t ben read * gid:7", file_text(f->path)); // no newline
    assert_null(strstr(before, secret));
    file_write(f->path, before);
    web.proof = PROOF_USER, web.id = 33, web.quotas[0] = mr_str("max-jobs=10");
    assert_int_equal(add(f, web), 0);
    assert_int_equal(auth_load(f->path, &a), 0);
    assert_ptr_equal(auth_find(a, mr_str("ann"), mr_str(secret)), auth_named(a, mr_str("ann")));
    assert_ptr_equal(auth_of_id(a, PROOF_USER, 33), auth_named(a, mr_str("web")));
    assert_non_null(auth_of_id(a, PROOF_GROUP, 7));
    auth_destroy(a);
    assert_int_equal(auth_remove(f->path, mr_str("web")), 0);
    snprintf(before + strlen(before), 2, "\n");
    assert_string_equal(file_text(f->path), before);
    assert_int_equal(auth_remove(f->path, mr_str("ben")), 0); // behind a tab
    assert_null(strstr(file_text(f->path), "ben"));
    assert_int_equal(auth_remove(f->path, mr_str("ben")), MR_EGONE);
    assert_int_equal(access(f->beside, F_OK), -1);
}

static void a_token_that_cannot_be_is_refused(void **state) {
    struct token_fixture *f = *state;
    static char roles[128];
    struct auth_words w = words("ann");
    for (size_t at = 0; at < 70; at += 5)
        memcpy(roles + at, at < 65 ? "push," : "push", 5);
    assert_int_equal(auth_remove(f->path, w.name), MR_EGONE); // there is no file
    assert_int_equal(add(f, words("default")), MR_EINVAL);
    w.roles = mr_str("fly");
    assert_int_equal(add(f, w), MR_EINVAL);
    w.roles = mr_str(roles);
    assert_int_equal(add(f, w), MR_EINVAL);
    assert_string_equal(error_text(), "a role is repeated");
    w = words("ann"), w.patterns = mr_str("a b");
    assert_int_equal(add(f, w), MR_EINVAL);
    w = words("ann"), w.quotas[0] = mr_str("max-jobs=many");
    assert_int_equal(add(f, w), MR_EINVAL);
    w.quotas[0] = mr_str("max-jobs=0000000000000000000000000000000000000000000000000000000000001");
    assert_int_equal(add(f, w), MR_EINVAL);
    assert_int_equal(access(f->path, F_OK), -1);
    w = words("ann"), w.proof = PROOF_USER, w.id = 33;
    assert_int_equal(add(f, w), 0);
    w.name = mr_str("ben");
    assert_int_equal(add(f, w), MR_EINVAL); // the user has a token
    assert_int_equal(add(f, words("ann")), MR_EINVAL);
}

// U10: two programs do not change the file at once; a file that others can write is not believed.
static void U10_a_file_that_may_be_changed_by_others_is_left_alone(void **state) {
    struct token_fixture *f = *state;
    struct auth *a;
    assert_int_equal(add(f, words("ann")), 0);
    file_write(f->beside, "half");
    assert_int_equal(add(f, words("ben")), MR_EBUSY);
    assert_int_equal(auth_remove(f->path, mr_str("ann")), MR_EBUSY);
    assert_string_equal(file_text(f->beside), "half");
    assert_int_equal(unlink(f->beside), 0);
    assert_int_equal(chmod(f->path, 0620), 0);
    assert_int_equal(auth_load(f->path, &a), MR_EPERM);
    assert_int_equal(add(f, words("ben")), MR_EPERM);
    assert_null(strstr(file_text(f->path), "ben"));
}

static void a_file_that_cannot_be_read_or_written_is_named(void **state) {
    struct token_fixture *f = *state;
    struct auth_words ann = words("ann");
    struct auth *a;
    char nowhere[64], secret[AUTH_SECRET + 1];
    static char endless[4097];
    assert_int_equal(auth_load(f->folder, &a), MR_EIO); // a folder
    assert_non_null(strstr(error_text(), f->folder));
    snprintf(nowhere, sizeof nowhere, "%s/no/tokens", f->folder);
    assert_int_equal(auth_add(nowhere, &ann, secret), MR_EGONE);
    memset(endless, 'a', sizeof endless - 1);
    assert_int_equal(auth_add(endless, &ann, secret), MR_EIO);
    assert_int_equal(mkdir(f->path, 0700), 0); // cannot be replaced by a file
    assert_int_equal(add(f, words("ann")), MR_EIO);
    assert_int_equal(access(f->beside, F_OK), -1);
}

// The owner of the file stays its owner when another user, who may, changes it.
static void U10_the_owner_of_the_file_stays(void **state) {
    struct token_fixture *f = *state;
    struct stat after;
    if (geteuid() != 0)
        skip();
    assert_int_equal(add(f, words("ann")), 0);
    assert_int_equal(chown(f->path, 1234, 1234), 0);
    assert_int_equal(add(f, words("ben")), 0);
    assert_int_equal(stat(f->path, &after), 0);
    assert_int_equal(after.st_uid, 1234);
    assert_int_equal(after.st_gid, 1234);
    assert_int_equal(after.st_mode & 0777, 0600);
}

// F51: every allocation fails once; the file is the old one or the new one.
static void F51_a_token_is_added_whole_or_not_at_all(void **state) {
    struct token_fixture *f = *state;
    char before[4096];
    assert_int_equal(add(f, words("ann")), 0);
    snprintf(before, sizeof before, "%s", file_text(f->path));
    bool failed = true;
    for (long n = 0; failed; n++) {
        mem_fail_after(n);
        int err = add(f, words("ben"));
        failed = mem_fail_after(-1) < 0;
        assert_int_equal(err, failed ? MR_ENOMEM : 0);
        if (failed)
            assert_string_equal(file_text(f->path), before);
    }
    failed = true;
    for (long n = 0; failed; n++) {
        mem_fail_after(n);
        int err = auth_remove(f->path, mr_str("ben"));
        failed = mem_fail_after(-1) < 0;
        assert_int_equal(err, failed ? MR_ENOMEM : 0);
    }
    assert_string_equal(file_text(f->path), before);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(U10_a_token_is_added_and_removed),
        CASE(a_token_that_cannot_be_is_refused),
        CASE(U10_a_file_that_may_be_changed_by_others_is_left_alone),
        CASE(a_file_that_cannot_be_read_or_written_is_named),
        CASE(U10_the_owner_of_the_file_stays),
        CASE(F51_a_token_is_added_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
