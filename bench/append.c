// The store's own rate: appends batches of one size to a stream in PostgreSQL, one at a time, as
// the writer of a log does, and trims as it goes.
//
//     append URL SECONDS HEADS BODIES    the URL of a cluster that no node uses; bytes of a batch
//
// Prints appends per second.
#include "bench/measure.h"
#include "log/stream_postgres.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEPT = 64 << 20 }; // bytes that are not trimmed

static void stop_if(int err, const char *what) {
    if (err != 0) {
        fprintf(stderr, "append: %s: %s\n", what, error_text());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "append URL SECONDS HEADS BODIES\n");
        return 2;
    }
    struct stream_postgres_options options = { .url = argv[1], .cluster = "main" };
    double seconds = strtod(argv[2], NULL);
    mr_bytes heads = { .size = strtoul(argv[3], NULL, 10) };
    mr_bytes bodies = { .size = strtoul(argv[4], NULL, 10) };
    heads.data = calloc(1, heads.size + 1);
    bodies.data = calloc(1, bodies.size + 1);
    struct stream_store *store;
    struct stream *stream;
    struct stream_state state;
    stop_if(stream_postgres_create(&options, &store), "the URL");
    stop_if(store->open(store, 0, &stream), "the stream");
    stop_if(stream->impl->look(stream, &state), "look");
    stop_if(stream->impl->claim(stream, state.epoch, &state), "claim");
    uint64_t at = state.tail, trimmed = at, count = 0;
    double began = clock_ns(CLOCK_MONOTONIC), until = began + seconds * 1e9, now = began;
    for (; now < until; now = clock_ns(CLOCK_MONOTONIC), count++) {
        struct stream_batch b = { at, at + heads.size + bodies.size, heads, bodies };
        stop_if(stream->impl->append(stream, state.epoch, at, &b), "append");
        at = b.end;
        if (at - trimmed < KEPT)
            continue;
        trimmed = at;
        stop_if(stream->impl->trim(stream, state.epoch, trimmed), "trim");
    }
    printf("appends_per_s %.1f\n", (double)count / ((now - began) / 1e9));
    stream->impl->close(stream);
    store->close(store);
    free((void *)(uintptr_t)heads.data);
    free((void *)(uintptr_t)bodies.data);
    return 0;
}
