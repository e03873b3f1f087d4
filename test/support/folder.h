// A test's own folder, from mkdtemp, goes with all that is in it.
#ifndef TEST_SUPPORT_FOLDER_H
#define TEST_SUPPORT_FOLDER_H

#include <assert.h>
#include <ftw.h>
#include <stdio.h>

static inline int folder_remove_one(const char *path, const struct stat *stat, int type,
                                    struct FTW *at) {
    (void)stat, (void)type, (void)at;
    return remove(path);
}

static inline void folder_remove(const char *path) {
    int err = nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert(err == 0);
}

#endif
