// The file of a Unix-domain socket: its permissions, what is replaced and what stays.
#include "server/socket_file.h"

#include "base/errors.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/socket_file_XXXXXX";
static char path[sizeof folder + 8];

static int setup(void **state) {
    (void)state;
    memset(folder + sizeof folder - 7, 'X', 6);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/sock", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    folder_remove(folder);
    return 0;
}

static mode_t mode_of(const char *name) {
    struct stat file;
    return lstat(name, &file) < 0 ? 0 : file.st_mode;
}

// 0: a process listens there.
static int dial(void) {
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    memcpy(at.sun_path, path, sizeof path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int err = connect(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
    return err;
}

static void U10_a_socket_file_has_the_permissions_it_was_given(void **state) {
    (void)state;
    static const mode_t masks[] = { 0, 022, 077, 0777 }, modes[] = { 0600, 0660, 0666, 0777 };
    for (size_t m = 0; m < 4; m++)
        for (size_t i = 0; i < 4; i++) {
            struct socket_file f;
            int fd;
            mode_t before = umask(masks[m]);
            assert_int_equal(socket_file_create(path, modes[i], &f, &fd), 0);
            umask(before);
            assert_int_equal(mode_of(path), S_IFSOCK | modes[i]);
            assert_int_equal(dial(), 0);
            socket_file_remove(&f);
            assert_int_equal(mode_of(path), 0);
            close(fd);
        }
}

static void a_file_of_a_dead_server_is_replaced_one_of_a_living_stays(void **state) {
    (void)state;
    struct socket_file dead, living, late = { .path = "kept" };
    int fd, late_fd = -2;
    assert_int_equal(socket_file_create(path, 0600, &dead, &fd), 0);
    close(fd); // its process was killed
    assert_int_equal(dial(), -1);
    assert_int_equal(socket_file_create(path, 0600, &living, &fd), 0);
    assert_int_equal(socket_file_create(path, 0600, &late, &late_fd), MR_ENET);
    assert_non_null(strstr(error_text(), "another server listens there"));
    assert_int_equal(late_fd, -2);
    assert_string_equal(late.path, "kept");
    assert_int_equal(dial(), 0);
    socket_file_remove(&living);
    socket_file_remove(&living);
    close(fd);
}

static void a_file_that_another_has_put_there_is_not_removed(void **state) {
    (void)state;
    struct socket_file first, second;
    int fds[2];
    assert_int_equal(socket_file_create(path, 0600, &first, &fds[0]), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(socket_file_create(path, 0600, &second, &fds[1]), 0);
    socket_file_remove(&first);
    assert_int_equal(dial(), 0);
    socket_file_remove(&second);
    close(fds[0]);
    close(fds[1]);
}

static void expect_refused(const char *name, int err, const char *why) {
    struct socket_file f;
    int fd = -2;
    assert_int_equal(socket_file_create(name, 0600, &f, &fd), err);
    assert_non_null(strstr(error_text(), why));
    assert_int_equal(fd, -2);
}

static void paths_of_no_use_are_refused_and_nothing_is_removed(void **state) {
    (void)state;
    char name[SOCKET_FILE_PATH + 1];
    memset(name, 'a', sizeof name);
    name[SOCKET_FILE_PATH] = 0;
    expect_refused(name, MR_EINVAL, "1 to 107 bytes, this one has 108");
    expect_refused("", MR_EINVAL, "1 to 107 bytes");
    snprintf(name, sizeof name, "%s/none/sock", folder);
    expect_refused(name, MR_ENET, "its directory must exist");
    expect_refused(folder, MR_EINVAL, "no socket");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    expect_refused(path, MR_EINVAL, "no socket");
    assert_true(S_ISREG(mode_of(path)));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    expect_refused(path, MR_EINVAL, "no socket");
    assert_true(S_ISLNK(mode_of(path)));
}

static void a_path_of_the_longest_size_works(void **state) {
    (void)state;
    char name[SOCKET_FILE_PATH];
    size_t used = (size_t)snprintf(name, sizeof name, "%s/", folder);
    memset(name + used, 'a', sizeof name - used);
    name[sizeof name - 1] = 0;
    struct socket_file f;
    int fd;
    assert_int_equal(socket_file_create(name, 0600, &f, &fd), 0);
    assert_int_equal(mode_of(name), S_IFSOCK | 0600);
    socket_file_remove(&f);
    assert_int_equal(mode_of(name), 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(U10_a_socket_file_has_the_permissions_it_was_given, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_file_of_a_dead_server_is_replaced_one_of_a_living_stays,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_another_has_put_there_is_not_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(paths_of_no_use_are_refused_and_nothing_is_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_path_of_the_longest_size_works, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
