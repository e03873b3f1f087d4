// The life of a job in one thread by the public API: mr_push, mr_take, mr_done on mem:, while a
// backlog of jobs is queued.
//
//     life_api [KEYS [LIVE [LIVES [REPEATS [SHARDS]]]]]     KEYS 0: jobs without a key
#include "bench/keys.h"
#include "bench/measure.h"

struct run {
    mr *m;
    struct keys keys;
    uint64_t pushed;
};

static void try(int err, const char *what) {
    if (err < 0)
        must(err, what, mr_error());
}

static void push(struct run *r) {
    static const char body[64];
    mr_push_options o = { .key = keys_at(&r->keys, r->pushed) };
    try(mr_push(r->m, "bench", (mr_bytes){ body, sizeof body }, &o, NULL), "push");
    r->pushed++;
}

static void live_once(struct run *r) {
    mr_job *job;
    push(r);
    try(mr_take(r->m, "bench", NULL, &job), "take");
    try(mr_done(job), "done");
}

int main(int argc, char **argv) {
    uint64_t live = argument(argc, argv, 2, 1000), lives = argument(argc, argv, 3, 1000000);
    uint64_t repeats = argument(argc, argv, 4, 3);
    struct run r = { .keys = keys_make(argument(argc, argv, 1, 0)) };
    mr_options options = { .shards = (uint32_t)argument(argc, argv, 5, 1) };
    try(mr_open("mem:", &options, &r.m), "open");
    for (uint64_t i = 0; i < live; i++)
        push(&r);
    for (uint64_t repeat = 0; repeat < repeats; repeat++) {
        struct lap start = lap_begin();
        for (uint64_t i = 0; i < lives; i++)
            live_once(&r);
        lap_tell("life", lap_end(start), lives);
    }
    try(mr_close(r.m), "close");
    free(r.keys.names);
    return 0;
}
