// driver CORPUS [MUTATIONS]: a fuzzer without libFuzzer, the same in every run: each file of the
// corpus, and so many mutations of it (2000), which depend on nothing but the files. make check
// lets libFuzzer look for new inputs instead. Prints TAP.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILES = 256, SIZE = 1 << 16, MUTATIONS = 2000 };

static struct input {
    uint8_t *data;
    size_t size;
} inputs[FILES];
static size_t input_count;

static uint64_t dice_state;

static size_t dice(size_t sides) {
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return sides ? (size_t)(dice_state % sides) : 0;
}

static int is_input(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int read_input(const char *dir, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "rb");
    struct input *in = &inputs[input_count];
    in->data = malloc(SIZE);
    if (!file || !in->data)
        return -1;
    in->size = fread(in->data, 1, SIZE, file);
    fclose(file);
    input_count++;
    return 0;
}

static int read_corpus(const char *dir) {
    struct dirent **names;
    int count = scandir(dir, &names, is_input, alphasort), err = 0;
    for (int i = 0; i < count; i++) {
        err = err < 0 || i >= FILES ? -1 : read_input(dir, names[i]->d_name);
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return count <= 0 ? -1 : err;
}

// ---- Mutations --------------------------------------------------------------------------------

static size_t cut(uint8_t *data, size_t size) {
    size_t at = dice(size), some = 1 + dice(size - at < 16 ? size - at : 16);
    if (at + some > size)
        some = size - at;
    memmove(data + at, data + at + some, size - at - some);
    return size - some;
}

static size_t put(uint8_t *data, size_t size, const uint8_t *from, size_t some) {
    size_t at = dice(size + 1);
    if (size + some > SIZE)
        return size;
    memmove(data + at + some, data + at, size - at);
    memcpy(data + at, from, some);
    return size + some;
}

static size_t mutate(uint8_t *data, size_t size) {
    const struct input *other = &inputs[dice(input_count)];
    uint8_t some[16], byte = (uint8_t)dice(256);
    size_t from = dice(other->size), most = other->size - from;
    size_t count = 1 + dice(most < sizeof some ? most : sizeof some);
    switch (size ? dice(6) : 4) {
    case 0:
        data[dice(size)] ^= (uint8_t)(1 << dice(8));
        return size;
    case 1:
        data[dice(size)] = byte;
        return size;
    case 2:
        data[dice(size)] = byte & 1 ? 0xff : 0;
        return size;
    case 3:
        return cut(data, size);
    case 4:
        return put(data, size, &byte, 1);
    default:
        if (!most)
            return size;
        count = count < most ? count : most;
        memcpy(some, other->data + from, count < sizeof some ? count : sizeof some);
        return put(data, size, some, count < sizeof some ? count : sizeof some);
    }
}

// A block of its own size, so that a sanitizer notices what reads beyond it.
static void try(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void try_all(const struct input *in, long mutations) {
    static uint8_t data[SIZE];
    try(in->data, in->size);
    for (long i = 0; i < mutations; i++) {
        size_t size = in->size;
        memcpy(data, in->data, size);
        for (size_t edits = 1 + dice(4); edits > 0; edits--)
            size = mutate(data, size);
        try(data, size);
    }
}

int main(int argc, char **argv) {
    long mutations = argc > 2 ? strtol(argv[2], NULL, 10) : MUTATIONS;
    printf("1..1\n");
    if (argc < 2 || read_corpus(argv[1]) < 0) {
        printf("not ok 1 - there is a corpus\n");
        return 1;
    }
    for (size_t i = 0; i < input_count; i++) {
        dice_state = 88172645463325252 + i;
        try_all(&inputs[i], mutations);
    }
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].data);
    printf("ok 1 - %zu inputs and %ld mutations of each\n", input_count, mutations);
    return 0;
}
