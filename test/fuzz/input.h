// What fuzzers of text and files share: the input as a string, as words, and as a file; and
// messages that are not printed.
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A copy with a 0 byte behind it; the caller frees it.
static inline char *input_string(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    assert(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

// Cuts the string at line ends into at most `most` words, and ends them with NULL; their number.
static inline int input_words(char *text, char **out, int most) {
    int count = 0;
    for (char *word; count < most && (word = strsep(&text, "\n")) != NULL;)
        out[count++] = word;
    out[count] = NULL;
    return count;
}

enum { INPUT_PATH = 32 };

// A private file in memory with these bytes; its path. The caller closes the descriptor.
static inline int input_file(const uint8_t *data, size_t size, char out_path[INPUT_PATH]) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    assert(fd >= 0 && fchmod(fd, 0600) == 0);
    assert(write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    snprintf(out_path, INPUT_PATH, "/proc/self/fd/%d", fd);
    return fd;
}

// Reports of sanitizers do not use this stream.
static inline void input_mute(void) {
    static FILE *nowhere;
    if (!nowhere) {
        nowhere = fopen("/dev/null", "w");
        assert(nowhere);
        stderr = nowhere;
    }
}

#endif
